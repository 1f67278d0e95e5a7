package status

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of a Log.
const (
	maxLines  = 1000
	maxBytes  = 1 << 20
	maxErrors = 100
	maxText   = 64 << 10 // of one line, whose rest is cut off
)

// Log keeps the last log lines, and the last errors. The zero value is ready. All methods may be
// called from any goroutine.
type Log struct {
	mu     sync.Mutex
	last   uint64
	lines  ring
	errors ring
}

// ring has the last lines, oldest first, within bounds of lines and bytes.
type ring struct {
	kept  []Line
	bytes int
}

func (r *ring) add(l Line, most int) {
	r.kept = append(r.kept, l) // bound: maxLines and maxBytes
	r.bytes += len(l.Text)
	drop := 0
	for len(r.kept)-drop > most || r.bytes > maxBytes {
		r.bytes -= len(r.kept[drop].Text)
		drop++
	}
	r.kept = slices.Delete(r.kept, 0, drop) // zeroes the rest, so that texts are collected
}

// after returns the last lines above a sequence number, at most most of them.
func (r *ring) after(sequence uint64, most int) []Line {
	list := r.kept
	for len(list) > 0 && list[0].Sequence <= sequence {
		list = list[1:]
	}
	return append([]Line{}, list[max(0, len(list)-max(most, 0)):]...) // bound: maxLines
}

// Add copies and keeps a line. It does not wait.
func (l *Log) Add(level zerolog.Level, at time.Time, file, line, text []byte) {
	cut := text[:min(len(text), maxText)]
	one := Line{Time: at, Level: levelName(level), Source: string(file) + ":" + string(line), Text: strings.ToValidUTF8(string(cut), "\uFFFD")} // bound: a place in the source, which is cut; maxText
	if over := len(text) - len(cut); over > 0 {
		one.Text += fmt.Sprintf("… (%d bytes more)", over)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	one.Sequence = l.last
	l.lines.add(one, maxLines)
	if level >= zerolog.ErrorLevel && level <= zerolog.PanicLevel {
		l.errors.add(one, maxErrors)
	}
}

func levelName(level zerolog.Level) string {
	switch level {
	case zerolog.NoLevel, zerolog.Disabled:
		return "info"
	case zerolog.TraceLevel:
		return "debug"
	case zerolog.PanicLevel:
		return "fatal"
	}
	return level.String()
}

// Lines returns the last lines above a sequence number, at most most of them, oldest first, and the
// sequence number of the last line that was added.
func (l *Log) Lines(after uint64, most int) (lines []Line, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.after(after, most), l.last
}

// Errors returns the last errors in the same way.
func (l *Log) Errors(after uint64, most int) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors.after(after, most)
}
