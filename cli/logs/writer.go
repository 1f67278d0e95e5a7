package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server/jsontext"
)

// Writer converts zerolog's lines to Triton's format:
//
//	I0102 15:04:05.123456 4711 instance.go:90] "process lost, restarting model=m error=killed"
//	2024-01-02T15:04:05Z W 4711 model.py:12] "text of a model"
//
// The letter is I, W, E or F, times are UTC, and 4711 is this process. The message is a JSON
// string, or bare if escape is false. On a terminal, unless the environment decides, appendReadable
// formats it, so that tracebacks have lines. Fields follow the message inside its quotes, as
// key=value. Lines from a model have the fields "file" and "line", which replace our own.
type Writer struct {
	settings    *Settings
	escape      bool
	readable    struct{ out, err bool } // it is a terminal, and the environment does not choose the format of messages
	interactive bool                    // lines are for a person at a terminal
	colours     Palette                 // of an interactive log
	pid         int
	now         func() time.Time

	// Keep, if not nil, receives each written line except tables. It is set before the first line.
	// It must not block, and must copy the bytes that it keeps.
	Keep func(level zerolog.Level, at time.Time, file, line, message []byte)

	mu       sync.Mutex
	out, err io.Writer // out for information and verbose lines, err for warnings and errors
	line     []byte    // the current line; the buffer is reused
	text     []byte    // its message
	scanner  jsontext.Scanner
	document jsontext.Document // the line from zerolog, while it is read
}

// escapes parses the environment variable: 0 or FALSE, in any case, means bare messages.
func escapes(wish string) bool { return wish != "0" && !strings.EqualFold(wish, "false") }

// New returns the program's logger and the writer of its lines. The caller closes the file, which
// is nil if lines go to the console. New reads TRITON_SERVER_ESCAPE_LOG_MESSAGES from getenv.
func New(settings *Settings, getenv func(string) string, stdout, stderr io.Writer) (zerolog.Logger, *Writer, *os.File, error) {
	wish := getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES")
	w := &Writer{
		settings: settings,
		escape:   escapes(wish),
		pid:      os.Getpid(),
		now:      time.Now,
		out:      stdout,
		err:      stderr,
	}
	var file *os.File
	if path := settings.File(); path != "" {
		var err error
		file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return zerolog.Nop(), nil, nil, fmt.Errorf("--log-file: %w", err)
		}
		w.out, w.err = file, file
	} else if wish == "" {
		w.readable.out, w.readable.err = IsTerminal(stdout), IsTerminal(stderr)
		w.interactive = settings.interactive && w.readable.out && w.readable.err
		w.colours = PaletteOf(stdout, getenv)
	}
	return zerolog.New(w).With().Caller().Logger(), w, file, nil
}

// Write writes a line without a level.
func (w *Writer) Write(p []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel writes one line from zerolog. Write errors are dropped, because there is nowhere to
// report them, and the server continues.
func (w *Writer) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	if !w.settings.wants(level) {
		return len(p), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()

	message, file, line := w.readLocked(p)
	now := w.now()
	if w.Keep != nil {
		w.Keep(level, now.UTC(), baseName(file), line, message)
	}
	if w.interactive {
		if w.settings.passesOver(level, file, message) {
			return len(p), nil
		}
		message = w.settings.withoutFrames(level, file, message)
		w.startInteractiveLocked(now, level)
	} else {
		w.startLocked(now.UTC(), level, file, line)
	}
	readable := w.readable.out
	if letter(level) != 'I' {
		readable = w.readable.err
	}
	switch {
	case readable:
		w.line = appendReadable(w.line, message)
	case w.escape:
		w.line = jsontext.AppendString(w.line, message)
	default:
		w.line = append(w.line, message...)
	}
	w.line = append(w.line, '\n')
	w.flushLocked(level)
	return len(p), nil
}

// Interactive reports whether lines are written for a person at a terminal.
func (w *Writer) Interactive() bool { return w.interactive }

// Table writes a start-up table below the prefix of an info line, without escaping it. An
// interactive log has no tables.
func (w *Writer) Table(table string) {
	if !w.settings.wants(zerolog.InfoLevel) || w.interactive && w.settings.Verbose() == 0 {
		return
	}
	file, line := "", ""
	if _, path, number, ok := runtime.Caller(1); ok {
		file, line = path, strconv.Itoa(number)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startLocked(w.now().UTC(), zerolog.InfoLevel, []byte(file), []byte(line))
	w.line = append(w.line, '\n')
	w.line = append(w.line, table...)
	w.line = append(w.line, '\n')
	w.flushLocked(zerolog.InfoLevel)
}

func (w *Writer) flushLocked(level zerolog.Level) {
	out := w.out
	if letter(level) != 'I' {
		out = w.err
	}
	_, _ = out.Write(w.line)
}

func letter(level zerolog.Level) byte {
	switch level {
	case zerolog.WarnLevel:
		return 'W'
	case zerolog.ErrorLevel:
		return 'E'
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return 'F'
	}
	return 'I'
}

// startLocked begins w.line with everything before the message.
func (w *Writer) startLocked(now time.Time, level zerolog.Level, file, line []byte) {
	b := w.line[:0]
	if w.settings.ISO8601() {
		b = now.AppendFormat(b, "2006-01-02T15:04:05Z ")
		b = append(b, letter(level))
	} else {
		b = append(b, letter(level))
		b = now.AppendFormat(b, "0102 15:04:05.000000")
	}
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(w.pid), 10)
	b = append(b, ' ')
	b = append(b, baseName(file)...)
	b = append(b, ':')
	b = append(b, line...)
	w.line = append(b, "] "...)
}

// baseName returns the part after the last slash.
func baseName(path []byte) []byte {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}

// readLocked parses zerolog's line. The result is valid until the next call: the message with its
// fields is in w.text.
func (w *Writer) readLocked(p []byte) (message, file, line []byte) {
	var err error
	if w.document, err = w.scanner.Scan(nil, p); err != nil { // zerolog did not write it
		w.text = append(w.text[:0], bytes.TrimSpace(p)...)
		return w.text, nil, []byte("0")
	}
	var kept [16]field // enough for every line of ours, without allocating
	fields := kept[:0]
	var raw, caller, given, number jsontext.Value
	for members := w.document.Root().Members(); ; {
		name, value, ok := members.Next()
		if !ok {
			break
		}
		switch string(name.Raw) {
		case zerolog.LevelFieldName, zerolog.TimestampFieldName:
		case zerolog.MessageFieldName:
			raw = value
		case zerolog.CallerFieldName:
			caller = value
		case "file":
			given = value
		case "line":
			number = value
		default:
			fields = append(fields, field{name.Raw, value})
		}
	}

	w.text = appendPlain(w.text[:0], raw)
	for _, f := range fields {
		if len(w.text) > 0 {
			w.text = append(w.text, ' ')
		}
		w.text = append(w.text, f.name...)
		w.text = append(w.text, '=')
		if list, err := f.value.Elements(); err == nil && !w.escape {
			w.text = appendList(w.text, list)
		} else {
			w.text = appendPlain(w.text, f.value)
		}
	}
	end := len(w.text)
	line = []byte("0")
	if !given.Exists() {
		// "<path>:<line>", split at the last colon.
		w.text = appendPlain(w.text, caller)
		path := w.text[end:]
		if i := bytes.LastIndexByte(path, ':'); i >= 0 {
			return w.text[:end], path[:i], path[i+1:]
		}
		return w.text[:end], path, line
	}
	if number.Exists() {
		line = number.Raw()
	}
	w.text = appendPlain(w.text, given)
	return w.text[:end], w.text[end:], line
}
