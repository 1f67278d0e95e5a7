package devserver_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/devserver"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeTerminal records lines and the status line.
type fakeTerminal struct {
	mu     sync.Mutex
	lines  strings.Builder
	status string
}

func (s *fakeTerminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(p)
}

func (s *fakeTerminal) SetStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = text
}

func (s *fakeTerminal) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *fakeTerminal) want(t *testing.T, status string) {
	t.Helper()
	if got := s.now(); got != status {
		t.Errorf("got status %q, want %q", got, status)
	}
}

// TestStartIsShown checks the status line and the result lines while three models load, one of
// which fails.
func TestStartIsShown(t *testing.T) {
	s := &fakeTerminal{}
	p := devserver.NewProgress(s, logs.Palette{})
	p.Planned([]string{"a", "b", "c"})
	s.want(t, "loading 1 of 3")
	p.Began("a", 1)
	s.want(t, "loading 1 of 3: a")
	p.Ended("a", 1, 20*time.Second, nil)
	s.want(t, "loading 2 of 3")
	p.Began("b", 1)
	s.want(t, "loading 2 of 3: b")
	p.Ended("b", 1, 15*time.Second, &diagnosis.Fault{Reason: "broken"})
	p.Began("c\x1b[2J", 3) // not planned
	p.Began("c", 1)
	s.want(t, "loading 3 of 3: c")
	p.Ended("c", 1, 25*time.Second, nil)
	s.want(t, "")
	p.Ended("later\x1b", 2, time.Second, nil)
	if got, want := s.lines.String(), "✓ a 1  20.0 s\n✗ b 1  15.0 s\n    broken\n✓ c 1  25.0 s\n✓ later\\u001B 2  1.0 s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Planned([]string{"d"})
	p.Close()
	s.want(t, "")
}

// TestFailuresHaveSourceAndRemedy checks how errors of loads are shown: with their source, a
// remedy, and without an empty process name.
func TestFailuresHaveSourceAndRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"ValueError: no\n\nAt:\n  /r/m/1/model.py(3): initialize\n":                        "/r/m/1/model.py:3: ValueError: no",
		"Stub process '' is not healthy.":                                                  "the model's process has exited, or does not answer",
		"Stub process '' is not healthy. Python model file not found in '/r/m/1/model.py'": "Python model file not found in '/r/m/1/model.py'; each version directory needs a model.py with a class TritonPythonModel",
		"SyntaxError: invalid syntax (model.py, line 5)":                                   "r/m/1/model.py:5: SyntaxError: invalid syntax",
		"Stub process '' is not healthy. Cause: process exited with code 7":                "Cause: process exited with code 7",
		"bad \x1b[2J": `bad \u001B[2J`,
	} {
		s := &fakeTerminal{}
		p := devserver.NewProgress(s, logs.Palette{})
		p.Ended("m", 1, time.Second, diagnosis.OfVersion("m", 1, "r/m", errors.New(text)))
		if got, want := s.lines.String(), "✗ m 1  1.0 s\n    "+want+"\n"; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if !p.HasFailed("m") || p.HasFailed("other") {
			t.Errorf("failed: got %t and %t, want m alone", p.HasFailed("m"), p.HasFailed("other"))
		}
	}
}
