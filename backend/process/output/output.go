package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

// MaxLine is the default of Limits.LineBytes, and the maximum of Cut.
const MaxLine = 16 << 10

// Limits of a stub's output.
const (
	lineTick  = 100 * time.Millisecond
	tailLines = 40      // kept for the report of a stub's end, with at most MaxLine bytes each
	drainMost = 1 << 20 // read from a pipe after the end of its process; a pipe has 64 KiB
)

// Capture forwards a stub's stdout and stderr line by line as they arrive. Lines beyond the limits
// are dropped and counted.
type Capture struct {
	streams [2]source
	log     zerolog.Logger
	most    int           // bytes of a line
	done    chan struct{} // closed when both streams have ended

	mu    sync.Mutex
	limit Limit
	tail  []string // bound: tailLines
	told  bool     // a cut line has been reported
}

// source is stdout or stderr of a stub.
type source struct {
	file *os.File // read end, non-blocking
	// to receives each line as written, in one call that does not wait; nil: the log receives it as
	// text.
	to io.Writer
}

// Open creates the pipes and returns the stub's ends, stdout and stderr. to has the destinations of
// the lines; nil is the log.
func Open(log zerolog.Logger, to [2]io.Writer, limits Limits) (*Capture, [2]*os.File, error) {
	o := &Capture{log: log, done: make(chan struct{}), limit: NewLimit(limits)}
	o.most = o.limit.limits.LineBytes
	var ends [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err == nil {
			err = unix.SetNonblock(fds[0], true) // before os.NewFile, which checks for it
			o.streams[i] = source{os.NewFile(uintptr(fds[0]), name), to[i]}
			ends[i] = os.NewFile(uintptr(fds[1]), name)
		}
		if err != nil {
			o.Close()
			for _, end := range ends {
				_ = end.Close() // harmless if nil
			}
			return nil, [2]*os.File{}, os.NewSyscallError("make pipes for the output of a stub", err)
		}
	}
	return o, ends, nil
}

// Begin copies in goroutines. If one panics, its output is discarded and the stub does not block.
func (o *Capture) Begin() {
	var copying sync.WaitGroup
	for i := range o.streams {
		s := &o.streams[i]
		copying.Add(1)
		panics.Go(o.log, panics.Life, func() {
			defer copying.Done()
			o.copy(s)
		}, func(error) {
			_, _ = io.Copy(io.Discard, s.file)
		})
	}
	panics.Go(o.log, panics.Life, func() {
		defer close(o.done)
		copying.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.limit.report(o.log)
	}, nil)
}

// copy copies until the end of file, or until Finish has drained the pipe.
func (o *Capture) copy(s *source) {
	buffer := make([]byte, 32<<10)
	var line []byte // bound: Limits.LineBytes
	length := 0     // of the line as written
	drained := 0    // bytes
	for {
		n, err := s.file.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) && drained < drainMost {
			n, err = s.readNow(buffer)
			drained += n
		}
		chunk := buffer[:n]
		for len(chunk) > 0 {
			end := bytes.IndexByte(chunk, '\n')
			part := chunk
			if end >= 0 {
				part = chunk[:end]
			}
			length += len(part)
			if room := o.most - len(line); room > 0 {
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

// readNow reads the pipe although its deadline has passed. io.EOF means that it is empty.
func (s *source) readNow(buffer []byte) (n int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	refused := raw.Control(func(fd uintptr) {
		for n, err = unix.Read(int(fd), buffer); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), buffer)
		}
	})
	if n <= 0 || refused != nil {
		return 0, io.EOF
	}
	return n, nil
}

// tellCut warns about the first line that is cut.
func (o *Capture) tellCut(length int) {
	if length <= o.most {
		return
	}
	o.mu.Lock()
	told := o.told
	o.told = true
	o.mu.Unlock()
	if !told {
		o.log.Warn().Int("bytes", length).Int("most", o.most).Msg("a printed line was too long and was truncated; further ones are not logged")
	}
}

// emit forwards a line. The last line of a stub may lack its newline; emit adds one because others'
// lines follow.
//
// bound: Limits.LineBytes
func (o *Capture) emit(s *source, line []byte) {
	text := string(bytes.TrimSuffix(line, []byte("\r")))
	if !utf8.ValidString(text) {
		text = string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD")))
	}
	last := text
	if len(last) > MaxLine {
		last = strings.Clone(Cut(last)) // without the rest of the line
	}
	o.mu.Lock()
	if len(o.tail) == tailLines {
		copy(o.tail, o.tail[1:])
		o.tail = o.tail[:tailLines-1]
	}
	o.tail = append(o.tail, last)
	allowed := o.limit.Allow(o.log, 1)
	o.mu.Unlock()
	switch {
	case !allowed:
	case s.to == nil:
		o.log.Log().Msg(text) // at any log level: printed text has none
	default:
		_, _ = s.to.Write(append(line, '\n'))
	}
}

// Finish reads the rest of the pipes of a stub that has ended, and closes them: a child of the
// model may hold the other ends open forever.
func (o *Capture) Finish() {
	for _, s := range o.streams {
		_ = s.file.SetReadDeadline(time.Unix(1, 0)) // from here on copy empties the pipe without waiting
	}
	<-o.done
	o.Close()
}

// Close closes the pipes of a Capture that has not begun, or is done.
func (o *Capture) Close() {
	for _, s := range o.streams {
		_ = s.file.Close() // harmless if nil
	}
}

// LastLines returns the last printed lines, oldest first.
func (o *Capture) LastLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.tail...) // bound: tailLines
}
