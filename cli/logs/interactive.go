package logs

import (
	"bytes"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/cli/command"
)

// Lines on an interactive terminal are meant for reading instead of grep:
//
// 	15:04:05 warning  process lost, restarting  model=m error=killed
//
// They have the time of day, the level unless it is info, and colours unless the environment
// disables them. Start-up tables and routine lines are left out unless the log is verbose.

// Terminal escape sequences.
const (
	plain     = "\x1b[0m"
	dim       = "\x1b[2m"
	red       = "\x1b[31m"
	green     = "\x1b[32m"
	yellow    = "\x1b[33m"
	clearLine = "\r\x1b[K"
)

// routine has the prefixes of lines that the progress display and the list of addresses replace.
var routine = []string{
	"loading: ", "successfully loaded '", "TRITONBACKEND_ModelInstanceInitialize: ", "Started ", "Collecting CPU metrics",
	"Waiting for in-flight requests", "Timeout ", "All models are stopped", "Requests are still in flight",
}

// told has the errors that the progress display replaces with a location and a remedy. Models may
// log the same texts, so the source file of the line must match.
var told = []struct {
	file, beginning, has string
	starting             bool // only while the server starts
}{
	{"load.go", "failed to load '", "", false},
	{"load.go", "model '", "", false}, // which includes the remedy
	{"code.go", "Failed to preinitialize Python stub: Python model file not found in '", "", false},
	{"serve.go", "Internal: failed to load all models", "", false},
	{"explicit.go", "Poll failed for model directory '", ": failed to read text proto from ", false}, // follows a line with the location
	{"explicit.go", "", ".pbtxt:", true},                                                             // that line, which the list of failed models repeats
}

// Palette colours text for a terminal. The zero value returns it unchanged.
type Palette struct{ on bool }

// PaletteOf returns colours if w is a terminal, unless NO_COLOR is set or TERM names a terminal
// without colours.
func PaletteOf(w interface{ Write([]byte) (int, error) }, getenv func(string) string) Palette {
	return Palette{IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// On reports whether text is coloured.
func (p Palette) On() bool { return p.on }

// Red marks failures.
func (p Palette) Red(text string) string { return p.paint(red, text) }

// Green marks successes.
func (p Palette) Green(text string) string { return p.paint(green, text) }

// Dim marks unimportant text.
func (p Palette) Dim(text string) string { return p.paint(dim, text) }

func (p Palette) paint(with, text string) string {
	if !p.on || text == "" {
		return text
	}
	return with + text + plain
}

// passesOver reports whether an interactive log leaves a line out.
func (s *Settings) passesOver(level zerolog.Level, file, message []byte) bool {
	if s.Verbose() > 0 {
		return false
	}
	if level == zerolog.ErrorLevel {
		for _, one := range told {
			if (!one.starting || s.starting.Load()) && string(baseName(file)) == one.file && bytes.HasPrefix(message, []byte(one.beginning)) && bytes.Contains(message, []byte(one.has)) {
				return true
			}
		}
	}
	if level != zerolog.InfoLevel {
		return false
	}
	for _, beginning := range routine {
		if bytes.HasPrefix(message, []byte(beginning)) {
			return true
		}
	}
	return false
}

// withoutFrames removes the frames in Triton's format if Python's traceback, which includes the
// code, follows them.
func (s *Settings) withoutFrames(level zerolog.Level, file, message []byte) []byte {
	if level != zerolog.ErrorLevel || s.Verbose() > 0 || string(baseName(file)) != "loop.py" || !bytes.HasPrefix(message, []byte("Failed to initialize Python stub")) {
		return message
	}
	frames := bytes.Index(message, []byte("\n\nAt:\n"))
	traceback := bytes.Index(message, []byte("\n\nTraceback (most recent call last):\n"))
	if frames < 0 || traceback < frames {
		return message
	}
	return append(message[:frames:frames], message[traceback:]...)
}

// startInteractiveLocked begins w.line with everything before the message.
func (w *Writer) startInteractiveLocked(now time.Time, level zerolog.Level) {
	w.line = append(w.line[:0], w.colours.Dim(now.Format("15:04:05"))...)
	w.line = append(w.line, ' ')
	switch level {
	case zerolog.WarnLevel:
		w.line = append(w.line, w.colours.paint(yellow, "warning")...)
		w.line = append(w.line, "  "...)
	case zerolog.ErrorLevel, zerolog.FatalLevel, zerolog.PanicLevel:
		w.line = append(w.line, w.colours.Red("error")...)
		w.line = append(w.line, "  "...)
	}
}

// SetStatus shows a line below all others, which is updated in place, until it is set to "". It
// does nothing if the console is not a terminal. The text becomes one line, cut to the width of the
// terminal.
func (c *Console) SetStatus(text string) {
	if !IsTerminal(c) {
		return
	}
	text = command.Line(text)
	if size, err := unix.IoctlGetWinsize(c.fd, unix.TIOCGWINSZ); err == nil && size.Col > 1 {
		if letters := []rune(text); len(letters) >= int(size.Col) {
			text = string(letters[:size.Col-1])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := ""
	if c.status != "" {
		before = clearLine
	}
	c.status = text
	c.putLocked([]byte(before + text))
}

// underStatusLocked inserts text above the status line.
func (c *Console) underStatusLocked(p []byte) []byte {
	if c.status == "" {
		return p
	}
	whole := strings.TrimSuffix(string(p), "\n") + "\n"
	return []byte(clearLine + whole + c.status)
}
