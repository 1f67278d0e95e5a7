package logs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// testLog is a logger with a fixed time and process 42.
type testLog struct {
	zerolog.Logger
	settings *Settings
	lines    *Writer
	out, err bytes.Buffer
}

func newTestLog(t *testing.T, o Options, env string) *testLog {
	t.Helper()
	l := &testLog{settings: NewSettings(o)}
	t.Cleanup(func() { zerolog.SetGlobalLevel(zerolog.TraceLevel) })
	log, lines, file, err := New(l.settings, func(string) string { return env }, &l.out, &l.err)
	if err != nil {
		t.Fatal(err)
	}
	if file != nil {
		t.Cleanup(func() { file.Close() })
	}
	lines.pid = 42
	lines.now = func() time.Time {
		return time.Date(2024, 1, 2, 16, 4, 5, 123456789, time.FixedZone("east", 3600))
	}
	l.Logger, l.lines = log, lines
	return l
}

var AllLines = Options{Info: true, Warning: true, Error: true, Verbose: 1}

// callerLine matches the line number in the prefix of a log line, which these tests ignore.
var callerLine = regexp.MustCompile(`_test\.go:\d+\]`)

func (l *testLog) take() string {
	text := l.out.String() + l.err.String()
	l.out.Reset()
	l.err.Reset()
	return callerLine.ReplaceAllString(text, "_test.go:N]")
}

func TestLinesHaveLevelTimeAndSource(t *testing.T) {
	for _, test := range []struct {
		name string
		log  func(l *testLog)
		want string
	}{
		{"information", func(l *testLog) { l.Info().Msg("loading: m:1") },
			`I0102 15:04:05.123456 42 writer_test.go:N] "loading: m:1"`},
		{"verbose", func(l *testLog) { l.Debug().Msg("x") }, `I0102 15:04:05.123456 42 writer_test.go:N] "x"`},
		{"warning", func(l *testLog) { l.Warn().Msg("x") }, `W0102 15:04:05.123456 42 writer_test.go:N] "x"`},
		{"error", func(l *testLog) { l.Error().Msg("x") }, `E0102 15:04:05.123456 42 writer_test.go:N] "x"`},
		{"panic", func(l *testLog) { l.WithLevel(zerolog.PanicLevel).Msg("x") }, `F0102 15:04:05.123456 42 writer_test.go:N] "x"`},
		{"fields follow", func(l *testLog) {
			child := l.With().Str("model", "m").Int("version", 1).Logger()
			child.Warn().Err(errors.New(`exit "1"`)).Bool("ok", false).Floats64("f", []float64{1, 2.5}).Msg("process lost, restarting")
		}, `W0102 15:04:05.123456 42 writer_test.go:N] "process lost, restarting model=m version=1 error=exit \"1\" ok=false f=[1,2.5]"`},
		{"fields alone", func(l *testLog) { l.Info().Str("a", "b").Send() }, `I0102 15:04:05.123456 42 writer_test.go:N] "a=b"`},
		{"a model's line", func(l *testLog) { l.Info().Str("file", "/r/m/1/model.py").Int("line", 46).Msg("x") },
			`I0102 15:04:05.123456 42 model.py:46] "x"`},
		{"escapes", func(l *testLog) {
			l.Info().Str("file", "model.py").Int("line", 5).Msg("a/b \x01\x1f\x7f é ☃ 𝄞 <>& \u2028 \\ \" \b\f\r\t\n.")
		}, "I0102 15:04:05.123456 42 model.py:5] \"a/b \\u0001\\u001F\x7f é ☃ 𝄞 <>& \u2028 \\\\ \\\" \\b\\f\\r\\t\\n.\""},
		{"not UTF-8", func(l *testLog) { l.Info().Msg("a\xffb") }, `I0102 15:04:05.123456 42 writer_test.go:N] "a` + "\ufffd" + `b"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newTestLog(t, AllLines, "")
			test.log(l)
			if got := l.take(); got != test.want+"\n" {
				t.Errorf("got  %q\nwant %q", got, test.want+"\n")
			}
		})
	}
}

// TestEnvironmentAsksForBareMessages checks which values of the environment variable select
// messages without quotes.
func TestEnvironmentAsksForBareMessages(t *testing.T) {
	for wish, bare := range map[string]bool{"": false, "0": true, "FALSE": true, "false": true, "1": false, "TRUE": false, "off": false} {
		l := newTestLog(t, AllLines, wish)
		l.Info().Msg("x")
		if got := l.take(); strings.HasSuffix(got, "] x\n") != bare {
			t.Errorf("%q: got %q", wish, got)
		}
	}
}

func TestLogGoesToBothConsoles(t *testing.T) {
	l := newTestLog(t, AllLines, "")
	l.Info().Msg("i")
	l.Debug().Msg("v")
	l.Warn().Msg("w")
	l.Error().Msg("e")
	if out, err := strings.Count(l.out.String(), "\n"), strings.Count(l.err.String(), "\n"); out != 2 || err != 2 {
		t.Errorf("got %d lines on the standard output and %d on the error output, want 2 and 2", out, err)
	}
}

func TestLogFileIsAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := AllLines
	o.File = path
	l := newTestLog(t, o, "")
	l.Info().Str("file", "f").Int("line", 1).Msg("i")
	l.Error().Str("file", "f").Int("line", 1).Msg("e")
	content, err := os.ReadFile(path)
	if want := "before\nI0102 15:04:05.123456 42 f:1] \"i\"\nE0102 15:04:05.123456 42 f:1] \"e\"\n"; err != nil || string(content) != want {
		t.Errorf("got %q, %v, want %q", content, err, want)
	}
	if l.out.Len()+l.err.Len() > 0 {
		t.Errorf("got %q on the console, want nothing", l.take())
	}
}

func TestLogKeepsLinesWithoutEscapes(t *testing.T) {
	l := newTestLog(t, AllLines, "0")
	l.Info().Str("file", "f").Int("line", 1).Str("k", "v").Msg("two\n\"lines\"")
	if got, want := l.take(), "I0102 15:04:05.123456 42 f:1] two\n\"lines\" k=v\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.Info().Str("file", "f").Int("line", 1).Strs("requests", []string{"a\"\\\n", "b,]"}).Strs("none", nil).Ints("n", []int{1, 2}).Msg("x")
	if got, want := l.take(), "I0102 15:04:05.123456 42 f:1] x requests=[\"a\"\\\n\",\"b,]\"] none=[] n=[1,2]\n"; got != want {
		t.Errorf("lists: got %q, want %q", got, want)
	}
}

func TestLogSettingsChange(t *testing.T) {
	l := newTestLog(t, Options{Info: true, Warning: true, Error: true}, "")
	all := func() string {
		l.Trace().Msg("t")
		l.Debug().Msg("v")
		l.Info().Msg("i")
		l.Warn().Msg("w")
		l.Error().Msg("e")
		var messages string
		for line := range strings.Lines(l.take()) {
			messages += line[strings.Index(line, `"`)+1:][:1]
		}
		return messages
	}
	for _, step := range []struct {
		change func(s *Settings)
		want   string
	}{
		{func(*Settings) {}, "iwe"},
		{func(s *Settings) { s.SetVerbose(1) }, "viwe"},
		{func(s *Settings) { s.SetVerbose(2) }, "tviwe"},
		{func(s *Settings) { s.SetInfo(false) }, "tvwe"},
		{func(s *Settings) { s.SetVerbose(0) }, "we"},
		{func(s *Settings) { s.SetWarning(false) }, "e"},
		{func(s *Settings) { s.SetError(false) }, ""},
		{func(s *Settings) { s.SetInfo(true) }, "i"},
	} {
		step.change(l.settings)
		if got := all(); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	l.settings.SetISO8601(true)
	l.Info().Str("file", "f").Int("line", 1).Msg("i")
	if got, want := l.take(), "2024-01-02T15:04:05Z I 42 f:1] \"i\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTablesAreInformation(t *testing.T) {
	l := newTestLog(t, AllLines, "")
	l.lines.Table("+-\"-+\n")
	if got, want := l.take(), "I0102 15:04:05.123456 42 writer_test.go:N] \n+-\"-+\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.settings.SetInfo(false)
	l.lines.Table("x")
	if got := l.take(); got != "" {
		t.Errorf("got %q, want nothing: information is off", got)
	}
}

// TestLogFromManyGoroutines checks that no line is torn when many goroutines log. It is also meant
// for the race detector.
func TestLogFromManyGoroutines(t *testing.T) {
	l := newTestLog(t, AllLines, "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				l.Info().Str("file", "f").Int("line", 1).Msg("x")
				l.settings.SetVerbose(l.settings.Verbose() ^ 1)
			}
		})
	}
	wg.Wait()
	if got := strings.Count(l.out.String(), "I0102 15:04:05.123456 42 f:1] \"x\"\n"); got != 800 {
		t.Errorf("got %d whole lines, want 800", got)
	}
}

// FuzzLogWriter writes lines that zerolog would never produce.
func FuzzLogWriter(f *testing.F) {
	for _, seed := range []string{
		`{"level":"info","message":"x","caller":"a/b.go:3"}` + "\n", `{}`, ``, `{"a":`, `{"a":"\`, `{"message":"\ud834\udd1e\ud834"}`,
		`{"a":[1,{"b":"]"}],"file":"x","line":2,"message":"m"}`, `{"a"}`, `{"`, `{":`, `{"\u12`,
	} {
		f.Add([]byte(seed))
	}
	settings := NewSettings(AllLines)
	f.Fuzz(func(t *testing.T, line []byte) {
		w := &Writer{settings: settings, escape: true, now: time.Now, out: io.Discard, err: io.Discard}
		before := bytes.Clone(line)
		if n, err := w.WriteLevel(zerolog.InfoLevel, line); n != len(line) || err != nil {
			t.Fatalf("got %d, %v, want %d and no error", n, err, len(line))
		}
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		if bytes.Count(w.line, []byte("\n")) != 1 && !bytes.Contains(line, []byte("\n")) {
			t.Fatalf("got %q, want one line", w.line)
		}
	})
}

func BenchmarkLogLine(b *testing.B) {
	l := NewSettings(Options{Info: true})
	log, _, _, err := New(l, func(string) string { return "" }, io.Discard, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	child := log.With().Str("model", "m").Str("instance", "m_0").Logger()
	failure := errors.New("process exited with code 1")
	b.Run("written", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			child.Info().Err(failure).Msg("process lost, restarting")
		}
	})
	b.Run("not wanted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			child.Debug().Err(failure).Msg("process lost, restarting")
		}
	})
}
