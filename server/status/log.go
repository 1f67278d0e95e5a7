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

// last returns the last lines above a sequence number, at most most of them, and the size of their
// texts.
func (r *ring) last(sequence uint64, most int) (lines []kept, bytes int) {
	first := len(r.kept)
	for ; first > 0 && len(r.kept)-first < most && r.kept[first-1].Sequence > sequence; first-- {
		bytes += r.kept[first-1].source + r.kept[first-1].text
	}
	return r.kept[first:], bytes
}

// after returns copies of these lines.
func (r *ring) after(sequence uint64, most int) []Line {
	lines, bytes := r.last(sequence, most)
	list := make([]Line, 0, len(lines)) // bound: maxLines
	at := len(r.texts) - bytes
	for _, k := range lines {
		k.Source = string(r.texts[at : at+k.source]) // bound: a place in the source
		at += k.source
		k.Text = string(r.texts[at : at+k.text]) // bound: maxText
		at += k.text
		list = append(list, k.Line)
	}
	return list
}

// lineBytes is the memory of a copied line besides its texts.
const lineBytes = 160

// size returns the memory of these copies.
func (r *ring) size(sequence uint64, most int) int64 {
	lines, bytes := r.last(sequence, most)
	return int64(bytes + lineBytes*len(lines))
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

// size returns the memory of what Lines and Errors would return.
func (l *Log) size(after uint64, most int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.size(after, most) + l.errors.size(after, most)
}
