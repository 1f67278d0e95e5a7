package devserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// screen keeps what is shown.
type screen struct {
	mu     sync.Mutex
	lines  strings.Builder
	status string
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(p)
}

func (s *screen) SetStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = text
}

func (s *screen) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// start makes a Progress whose clock stands still until it is moved.
func start(t *testing.T, threads int, times *Times) (p *Progress, s *screen, move func(time.Duration)) {
	t.Helper()
	s = &screen{}
	p = NewProgress(s, logs.Palette{}, threads, times, zerolog.Nop())
	t.Cleanup(p.Close)
	now := time.Unix(1_000_000, 0)
	p.mu.Lock()
	p.now = func() time.Time { return now }
	p.mu.Unlock()
	return p, s, func(d time.Duration) {
		p.mu.Lock()
		now = now.Add(d)
		p.mu.Unlock()
		p.show()
	}
}

func (s *screen) want(t *testing.T, status string) {
	t.Helper()
	if got := s.now(); got != status {
		t.Errorf("got status %q, want %q", got, status)
	}
}

// TestTimeLeftFromThisStart knows nothing of earlier starts.
func TestTimeLeftFromThisStart(t *testing.T) {
	p, s, move := start(t, 1, ReadTimes("", []string{"r"}))
	p.Planned([]string{"a", "b", "c"})
	s.want(t, "loading 1 of 3")
	p.Began("a", 1)
	s.want(t, "loading 1 of 3: a")
	p.Ended("a", 1, 20*time.Second, nil)
	s.want(t, "loading 2 of 3; about 40 s left")
	p.Began("b", 1)
	move(15 * time.Second)
	s.want(t, "loading 2 of 3: b; about 25 s left")
	p.Ended("b", 1, 15*time.Second, errors.New("broken"))
	p.Began("c\x1b[2J", 3) // is not of this start
	p.Began("c", 1)
	move(25 * time.Second)
	s.want(t, "loading 3 of 3: c; a moment left")
	p.Ended("c", 1, 25*time.Second, nil)
	s.want(t, "")
	p.Ended("later\x1b", 2, time.Second, nil)
	if got, want := s.lines.String(), "✓ a 1  20.0 s\n✗ b 1  15.0 s\n    broken\n✓ c 1  25.0 s\n✓ later\\u001B 2  1.0 s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTimeLeftFromEarlierStarts: four models on two threads, one of which takes most of the time.
func TestTimeLeftFromEarlierStarts(t *testing.T) {
	folder, repository := t.TempDir(), []string{t.TempDir()}
	p, _, _ := start(t, 2, ReadTimes(folder, repository))
	p.Planned([]string{"a", "b", "c", "d"})
	for name, took := range map[string]time.Duration{"a": 600, "b": 30, "c": 30, "d": 30} {
		p.Began(name, 1)
		p.Ended(name, 1, took*time.Second, nil)
	}
	p.Close()
	p, s, move := start(t, 2, ReadTimes(folder, repository))
	p.Planned([]string{"a", "b", "c", "d"})
	s.want(t, "loading 1 of 4; about 10 min left")
	p.Began("a", 1)
	move(590 * time.Second)
	s.want(t, "loading 1 of 4: a; about 50 s left")
	p.Ended("a", 1, 590*time.Second, nil)
	p.Began("b", 1)
	s.want(t, "loading 2 of 4: b; about 45 s left")
	if other := ReadTimes(folder, []string{t.TempDir()}); other.of("a") != 0 {
		t.Errorf("another repository: got %v, want no time", other.of("a"))
	}
}

// TestTimesHaveNoSecretOfAStore: the file names a store without query and user.
func TestTimesHaveNoSecretOfAStore(t *testing.T) {
	folder := t.TempDir()
	times := ReadTimes(folder, []string{"as://account/container/m?sig=SECRET"})
	times.note("a", time.Second)
	times.write()
	text, err := os.ReadFile(filepath.Join(folder, "load-times.json"))
	if err != nil || strings.Contains(string(text), "SECRET") || !strings.Contains(string(text), `"as://account/container/m?…"`) {
		t.Errorf("got %s, %v", text, err)
	}
	if again := ReadTimes(folder, []string{"as://account/container/m?sig=other"}); again.of("a") != time.Second {
		t.Errorf("with another query: got %v, want 1 s", again.of("a"))
	}
}

// TestTimesAreBounded, and survive a file that is damaged.
func TestTimesAreBounded(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "load-times.json")
	if err := os.WriteFile(file, []byte(`{"/x": null, "/y": {"seconds": "no"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range mostRepositories + 5 {
		times := ReadTimes(folder, []string{fmt.Sprintf("/r%d", i)})
		for m := range mostModels + 3 {
			if i > 0 && m > 0 {
				break
			}
			times.note(fmt.Sprint(m), time.Second)
		}
		times.write()
	}
	var all map[string]*repositoryTimes
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all) != mostRepositories {
		t.Fatalf("got %d repositories and error %v, want %d", len(all), err, mostRepositories)
	}
	for path, one := range all {
		if len(one.Seconds) > mostModels {
			t.Errorf("%s: got %d models, want at most %d", path, len(one.Seconds), mostModels)
		}
	}
	if left, err := filepath.Glob(filepath.Join(folder, ".load-times-*")); err != nil || len(left) > 0 {
		t.Errorf("got %q, want nothing left beside the file", left)
	}
}

// TestFailuresHavePlaceAndRemedy, and no name of a process that has none.
func TestFailuresHavePlaceAndRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"ValueError: no\n\nAt:\n  /r/m/1/model.py(3): initialize\n":                        "/r/m/1/model.py:3: ValueError: no",
		"Stub process '' is not healthy.":                                                  "the model's process has ended, or does not answer",
		"Stub process '' is not healthy. Python model file not found in '/r/m/1/model.py'": "Python model file not found in '/r/m/1/model.py'; each folder of a version needs a model.py with a class TritonPythonModel",
		"bad \x1b[2J": `bad \u001B[2J`,
	} {
		p, s, _ := start(t, 1, ReadTimes("", []string{"r"}))
		p.Ended("m", 1, time.Second, errors.New(text))
		if got, want := s.lines.String(), "✗ m 1  1.0 s\n    "+want+"\n"; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if !p.HasFailed("m") || p.HasFailed("other") {
			t.Errorf("failed: got %t and %t, want m alone", p.HasFailed("m"), p.HasFailed("other"))
		}
	}
}
