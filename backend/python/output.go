package python

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Limits of what a stub may print into the server's log.
const (
	maxLine       = 16 << 10 // bytes; the rest of a longer line is cut
	linesAtOnce   = 10_000   // a burst that is let through
	linesPerTick  = 200      // and then as many for each tick
	lineTick      = 100 * time.Millisecond
	tailLines     = 40 // kept for the report of a stub's end
	drainDeadline = 200 * time.Millisecond
)

// output copies what a stub writes to stdout and stderr into the log, line by
// line, as it comes. A stub that prints faster than the limits loses lines,
// which are counted; if the log itself is slow, the stub waits in print.
type output struct {
	file *os.File // read end, non-blocking
	log  zerolog.Logger
	done chan struct{}

	mu   sync.Mutex
	tail []string
}

// outputPipe makes the pipe and returns the end that the stub writes to.
func outputPipe(log zerolog.Logger) (*output, *os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("set non-blocking", err)
	}
	o := &output{file: os.NewFile(uintptr(fds[0]), "output"), log: log, done: make(chan struct{})}
	return o, os.NewFile(uintptr(fds[1]), "output"), nil
}

// begin copies beside. If that fails, what comes is lost, and nothing waits.
func (o *output) begin() {
	boundary.Go(o.log, boundary.Life, o.run, func(error) {
		_, _ = io.Copy(io.Discard, o.file)
	})
}

// run copies until the end of file, or until finish has drained the pipe.
func (o *output) run() {
	defer close(o.done)
	limit := lineLimit{tokens: linesAtOnce, last: time.Now()}
	buffer := make([]byte, 32<<10)
	var line []byte
	for {
		n, err := o.file.Read(buffer)
		chunk := buffer[:n]
		for len(chunk) > 0 {
			end := bytes.IndexByte(chunk, '\n')
			part := chunk
			if end >= 0 {
				part = chunk[:end]
			}
			if room := maxLine - len(line); room > 0 {
				line = append(line, part[:min(len(part), room)]...)
			}
			if end < 0 {
				break
			}
			o.emit(line, &limit)
			line = line[:0]
			chunk = chunk[end+1:]
		}
		if err != nil {
			break
		}
	}
	if len(line) > 0 {
		o.emit(line, &limit)
	}
	limit.report(o.log)
}

func (o *output) emit(line []byte, limit *lineLimit) {
	text := string(bytes.TrimSuffix(line, []byte("\r")))
	if !utf8.ValidString(text) {
		text = string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD")))
	}
	o.mu.Lock()
	if len(o.tail) == tailLines {
		copy(o.tail, o.tail[1:])
		o.tail = o.tail[:tailLines-1]
	}
	o.tail = append(o.tail, text)
	o.mu.Unlock()
	if limit.allow(o.log, 1) {
		o.log.Log().Msg(text) // whatever levels are switched off: nobody asked for a level
	}
}

// finish takes what is left in the pipe of a stub that has ended, and closes
// it: a child of the model may hold the other end for ever.
func (o *output) finish() {
	_ = o.file.SetReadDeadline(time.Now().Add(drainDeadline))
	<-o.done
	_ = o.file.Close()
}

// lastLines returns what was printed last, oldest first.
func (o *output) lastLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.tail...)
}

// cut shortens text to what one line of the log may hold.
func cut(text string) string { return cutAt(text, maxLine) }

// cutAt shortens text to at most n bytes.
func cutAt(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// lineLimit lets a burst of lines through, and then so many in each tick.
type lineLimit struct {
	tokens  int
	last    time.Time
	dropped int
}

// allow takes a line, or several, if there are any left.
func (l *lineLimit) allow(log zerolog.Logger, lines int) bool {
	if l.tokens <= 0 {
		ticks := int(time.Since(l.last) / lineTick)
		if ticks <= 0 {
			l.dropped++
			return false
		}
		l.tokens = min(ticks*linesPerTick, linesAtOnce)
		l.last = time.Now()
		l.report(log)
	}
	l.tokens -= lines
	return true
}

func (l *lineLimit) report(log zerolog.Logger) {
	if l.dropped > 0 {
		log.Warn().Int("lines", l.dropped).Msg("output of the model was dropped, it prints too much")
		l.dropped = 0
	}
}
