package archive

import (
	"context"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

const (
	batchBytes = 512 << 10 // content in one batch
	batchFiles = 16        // files in one: each is open from its making to its writing
	mostWriter = 8         // writers at once: more only wait for the locks of the file system
)

// file is a file that has its name and is open for its content.
//
// Ownership: parts counts the parts that are still to be written, and one for the reader
// of entries until it has queued the last. The goroutine that brings it to zero finishes the file:
// no other one has its descriptor then.
type file struct {
	*os.File
	entry string
	mode  fs.FileMode
	mtime time.Time
	parts atomic.Int32
}

// part is a range of a batch's buffer and where it goes.
type part struct {
	file     *file
	from, to int
	offset   int64 // in the file
}

// batch is content of several small files or a piece of a large one. It belongs to the
// reader of entries until it is queued, then to one writer, which gives it back by free.
type batch struct {
	buffer []byte
	used   int
	parts  []part // bound: batchFiles
}

// writers write the batches of the reader of entries.
type writers struct {
	ctx      context.Context // of one unpacking, and so are its writers
	fail     context.CancelCauseFunc
	progress *Progress
	empty    bool // utimensat takes a descriptor alone

	queue   chan *batch // sent and closed by the reader of entries; has room for all batches
	free    chan *batch // sent by writers; has room for all batches
	current *batch      // that the reader of entries fills
	group   sync.WaitGroup
}

func startWriters(ctx context.Context, fail context.CancelCauseFunc, log zerolog.Logger, progress *Progress) *writers {
	n := max(2, min(runtime.GOMAXPROCS(0), mostWriter))
	batches := n + 4 // one for each writer, and some that wait: all of them hold files open
	w := &writers{ctx: ctx, fail: fail, progress: progress, queue: make(chan *batch, batches), free: make(chan *batch, batches)}
	for range batches {
		w.free <- &batch{}
	}
	for range n {
		w.group.Go(panics.Guard(log, panics.Models, w.write, func(err error) { fail(err) }))
	}
	return w
}

// room returns space for at most want bytes of content, and flushes first if necessary. The caller
// reports the used part by add.
func (w *writers) room(want int64) ([]byte, error) {
	if b := w.current; b != nil && (b.used == len(b.buffer) || len(b.parts) >= batchFiles) {
		w.flush()
	}
	if w.current == nil {
		select {
		case w.current = <-w.free:
		case <-w.ctx.Done():
			return nil, context.Cause(w.ctx)
		}
		if w.current.buffer == nil {
			w.current.buffer = make([]byte, batchBytes)
		}
	}
	b := w.current
	return b.buffer[b.used:min(int64(b.used)+want, int64(len(b.buffer)))], nil
}

// add assigns the next n bytes of room to f.
func (w *writers) add(f *file, n int, offset int64) {
	b := w.current
	f.parts.Add(1)
	b.parts = append(b.parts, part{f, b.used, b.used + n, offset})
	b.used += n
}

func (w *writers) flush() {
	if w.current != nil {
		w.queue <- w.current
		w.current = nil
	}
}

// end waits until everything is written or, after a failure, until all files are closed.
func (w *writers) end() {
	w.flush()
	close(w.queue)
	w.group.Wait()
}

// write is one writer. After a failure it still takes batches, because their files must be closed.
func (w *writers) write() {
	for b := range w.queue {
		for _, p := range b.parts {
			if w.ctx.Err() == nil {
				if err := w.put(p.file, b.buffer[p.from:p.to], p.offset); err != nil {
					w.fail(diskError(p.file.entry, failedWrite+"content is not written", err))
				}
			}
			w.release(p.file)
		}
		b.parts, b.used = b.parts[:0], 0
		w.free <- b
	}
}

func (w *writers) put(f *file, content []byte, offset int64) error {
	n, err := f.WriteAt(content, offset)
	w.progress.Written.Add(int64(n))
	return err
}

// release gives up one share of a file. With the last share the file gets its mode, whatever the
// umask, and its time, and is closed.
func (w *writers) release(f *file) {
	if f.parts.Add(-1) > 0 {
		return
	}
	if w.ctx.Err() == nil {
		err := f.Chmod(f.mode)
		if err == nil {
			err = w.setTime(f)
		}
		if err != nil {
			w.fail(diskError(f.entry, "set mode and time of the file", err))
		}
	}
	if err := f.Close(); err != nil {
		w.fail(diskError(f.entry, failedWrite+"content is not written", err))
	}
}

func (w *writers) setTime(f *file) error {
	fd := int(f.Fd())
	if w.empty {
		return unix.UtimesNanoAt(fd, "", timesOf(f.mtime), unix.AT_EMPTY_PATH)
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), timesOf(f.mtime), 0)
}

// timesByDescriptor reports whether utimensat accepts a descriptor without a path, as it does since
// Linux 5.8.
func timesByDescriptor(root *os.Root) bool {
	directory, err := root.Open(".")
	if err != nil {
		return false
	}
	defer directory.Close()
	nothing := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	return unix.UtimesNanoAt(int(directory.Fd()), "", nothing, unix.AT_EMPTY_PATH) == nil
}

// timesOf returns the argument of utimensat that sets the time of the last change.
func timesOf(mtime time.Time) []unix.Timespec {
	return []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: mtime.Unix(), Nsec: int64(mtime.Nanosecond())}}
}

// limitTime limits a time to the range of file systems: from 1970 to 2242.
func limitTime(t time.Time) time.Time {
	if seconds := t.Unix(); seconds < 0 || seconds > 1<<33 {
		return time.Unix(max(0, min(seconds, 1<<33)), 0)
	}
	return t
}
