package status

import (
	"bytes"
	"fmt"
	"slices"
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

// ring has the last lines, oldest first, within bounds of lines and bytes. The texts lie in one
// piece of memory: small objects that live long among short-lived ones would each keep a whole page
// of the heap.
type ring struct {
	kept  []kept
	texts []byte // of kept, without gaps, after skip bytes of dropped lines
	skip  int
}

// kept is a line without its texts, and their lengths.
type kept struct {
	Line
	source, text int
}

func (r *ring) bytes() int { return len(r.texts) - r.skip }

func (r *ring) add(l Line, source string, text []byte, over string, most int) {
	r.texts = append(append(append(r.texts, source...), text...), over...) // bound: maxBytes, and one line
	r.kept = append(r.kept, kept{l, len(source), len(text) + len(over)})   // bound: maxLines and maxBytes
	drop := 0
	for len(r.kept)-drop > most || r.bytes() > maxBytes {
		r.skip += r.kept[drop].source + r.kept[drop].text
		drop++
	}
	r.kept = slices.Delete(r.kept, 0, drop)
	if r.skip > maxBytes/2 {
		r.texts = append(r.texts[:0], r.texts[r.skip:]...) // bound: its own size
		r.skip = 0
	}
}

// after returns the last lines above a sequence number, at most most of them.
func (r *ring) after(sequence uint64, most int) []Line {
	list := []Line{}
	end := len(r.texts)
	for i := len(r.kept) - 1; i >= 0 && len(list) < most && r.kept[i].Sequence > sequence; i-- {
		k := r.kept[i]
		k.Text = string(r.texts[end-k.text : end]) // bound: maxText
		end -= k.text
		k.Source = string(r.texts[end-k.source : end]) // bound: a place in the source
		end -= k.source
		list = append(list, k.Line) // bound: maxLines
	}
	slices.Reverse(list)
	return list
}

// Add copies and keeps a line. It does not wait.
func (l *Log) Add(level zerolog.Level, at time.Time, file, line, text []byte) {
	one := Line{Time: at, Level: levelName(level)}
	source := string(file) + ":" + string(line) // bound: a place in the source, which is cut
	cut, rest := text[:min(len(text), maxText)], ""
	if over := len(text) - len(cut); over > 0 {
		rest = fmt.Sprintf("… (%d bytes more)", over)
	}
	cut = bytes.ToValidUTF8(cut, []byte("\uFFFD")) // bound: maxText
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	one.Sequence = l.last
	l.lines.add(one, source, cut, rest, maxLines)
	if level >= zerolog.ErrorLevel && level <= zerolog.PanicLevel {
		l.errors.add(one, source, cut, rest, maxErrors)
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
