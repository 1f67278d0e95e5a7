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

// Limits of what a stub may print.
const (
	maxLine       = 16 << 10 // bytes; the rest of a longer line is cut
	linesAtOnce   = 10_000   // a burst that is let through
	linesPerTick  = 200      // and then as many for each tick
	lineTick      = 100 * time.Millisecond
	tailLines     = 40 // kept for the report of a stub's end
	drainDeadline = 200 * time.Millisecond
)

// output passes on what a stub writes to stdout and stderr, line by line, as it
// comes. A stub that prints faster than the limits loses lines, which are
// counted.
type output struct {
	streams [2]source
	log     zerolog.Logger
	done    chan struct{} // closed when both streams have ended

	mu    sync.Mutex
	limit lineLimit
	tail  []string
	told  bool // that a line was cut
}

// source is stdout or stderr of a stub.
type source struct {
	file *os.File // read end, non-blocking
	// to gets each line as it was written, in one call that does not wait; nil: the
	// log gets it as a text.
	to io.Writer
}

// newOutput makes the pipes and returns the ends that the stub writes to, stdout
// and stderr. to says where the lines of each go; nil is the log.
func newOutput(log zerolog.Logger, to [2]io.Writer) (*output, [2]*os.File, error) {
	o := &output{log: log, done: make(chan struct{}), limit: lineLimit{tokens: linesAtOnce, last: time.Now()}}
	var ends [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err == nil {
			err = unix.SetNonblock(fds[0], true) // before it becomes a file, which looks whether it is
			o.streams[i] = source{os.NewFile(uintptr(fds[0]), name), to[i]}
			ends[i] = os.NewFile(uintptr(fds[1]), name)
		}
		if err != nil {
			o.close()
			for _, end := range ends {
				_ = end.Close() // one that is nil says so
			}
			return nil, [2]*os.File{}, os.NewSyscallError("make pipes for the output of a stub", err)
		}
	}
	return o, ends, nil
}

// begin copies beside. If that fails, what comes is lost, and nothing waits.
func (o *output) begin() {
	var copying sync.WaitGroup
	for i := range o.streams {
		s := &o.streams[i]
		copying.Add(1)
		boundary.Go(o.log, boundary.Life, func() {
			defer copying.Done()
			o.copy(s)
		}, func(error) {
			_, _ = io.Copy(io.Discard, s.file)
		})
	}
	boundary.Go(o.log, boundary.Life, func() {
		defer close(o.done)
		copying.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.limit.report(o.log)
	}, nil)
}

// copy copies until the end of file, or until finish has drained the pipe.
func (o *output) copy(s *source) {
	buffer := make([]byte, 32<<10)
	var line []byte
	length := 0 // of the line, as it was written
	for {
		n, err := s.file.Read(buffer)
		chunk := buffer[:n]
		for len(chunk) > 0 {
			end := bytes.IndexByte(chunk, '\n')
			part := chunk
			if end >= 0 {
				part = chunk[:end]
			}
			length += len(part)
			if room := maxLine - len(line); room > 0 {
				line = append(line, part[:min(len(part), room)]...)
			}
			if end < 0 {
				break
			}
			o.tellCut(length)
			o.emit(s, line)
			line, length = line[:0], 0
			chunk = chunk[end+1:]
		}
		if err != nil {
			break
		}
	}
	if len(line) > 0 {
		o.tellCut(length)
		o.emit(s, line)
	}
}

// tellCut warns of the first line that is longer than what is passed on of it.
func (o *output) tellCut(length int) {
	if length <= maxLine {
		return
	}
	o.mu.Lock()
	told := o.told
	o.told = true
	o.mu.Unlock()
	if !told {
		o.log.Warn().Int("bytes", length).Int("most", maxLine).Msg("a printed line is too long and is cut, as others will be")
	}
}

// emit passes a line on. The last one of a stub may lack its end, and gets one:
// others follow.
func (o *output) emit(s *source, line []byte) {
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
	allowed := o.limit.allow(o.log, 1)
	o.mu.Unlock()
	switch {
	case !allowed:
	case s.to == nil:
		o.log.Log().Msg(text) // whatever levels are switched off: nobody asked for a level
	default:
		_, _ = s.to.Write(append(line, '\n'))
	}
}

// finish takes what is left in the pipes of a stub that has ended, and closes
// them: a child of the model may hold the other ends for ever.
func (o *output) finish() {
	for _, s := range o.streams {
		_ = s.file.SetReadDeadline(time.Now().Add(drainDeadline))
	}
	<-o.done
	o.close()
}

// close closes the pipes of an output that has not begun, or is done.
func (o *output) close() {
	for _, s := range o.streams {
		_ = s.file.Close() // one that is nil says so
	}
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
