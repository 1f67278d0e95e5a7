package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
)

// Blocks between the goroutines.
const (
	sourceBlocks   = 4
	unpackedBlocks = 8
	blockBytes     = 256 << 10
	plainBytes     = 16 << 20 // of an unpacking, beside the window of the compression and names
)

// Unpack creates the entries of an archive below root, an empty directory. source provides the
// archive from its first byte and is read to its end, in a goroutine of Unpack, so that a caller
// may hash the bytes. Unpack returns when ctx ends, but waits for a running Read; it leaves no
// goroutine. Errors are an *Error, a wrapped error of source, or the cause of ctx.
func Unpack(ctx context.Context, source io.Reader, root *os.Root, options Options) error {
	if err := options.Limits.Validate(); err != nil {
		return err
	}
	progress := options.Progress
	if progress == nil {
		progress = &Progress{}
	}
	p := &pipeline{limits: options.Limits.WithDefaults(), progress: progress, log: options.Log, charge: options.Charge}
	p.ctx, p.fail = context.WithCancelCause(ctx)
	err := panics.Run(p.log, panics.Models, func() error { return p.run(source, root) })
	p.fail(err) // the first error ends all goroutines, and counts
	p.group.Wait()
	if err != nil {
		return context.Cause(p.ctx)
	}
	return nil
}

// pipeline is one unpacking.
type pipeline struct {
	ctx      context.Context // of one unpacking, and so is the pipeline
	fail     context.CancelCauseFunc
	limits   Limits
	progress *Progress
	log      zerolog.Logger
	format   format
	charge   *budget.Charge // of the goroutine that runs run
	group    sync.WaitGroup // the goroutines that read and decompress
}

func (p *pipeline) run(source io.Reader, root *os.Root) (err error) {
	content, err := p.open(source)
	if err != nil {
		return err
	}
	e := &entries{limits: p.limits, progress: p.progress, in: &ended{in: content}}
	e.tar = tar.NewReader(e.in)
	if e.tree, err = newTree(root, e.made, p.charge); err != nil {
		return err
	}
	defer e.tree.close()
	e.writers = startWriters(p.ctx, p.fail, p.log, p.progress)
	e.writers.empty = timesByDescriptor(root)
	ended := false
	defer func() {
		if !ended { // a panic goes by here
			p.fail(errors.New("unpacking has ended"))
			e.writers.end()
		}
	}()
	err = e.unpack()
	if err != nil {
		p.fail(err)
	}
	ended = true
	e.writers.end()
	return errors.Join(err, context.Cause(p.ctx))
}

// open starts the goroutines that read and decompress, and returns their output.
func (p *pipeline) open(source io.Reader) (io.Reader, error) {
	read := newStream(p.ctx, sourceBlocks, blockBytes)
	p.start(func() {
		read.fill(&sourceReader{source}, func(n int) error {
			p.progress.Read.Add(int64(n))
			return nil
		})
	})
	in := bufio.NewReaderSize(read, 64<<10) // bound: 64 KiB
	var err error
	if p.format, err = recognise(in); err != nil {
		return nil, err
	}
	window := 0
	if p.format.window != nil {
		window = p.format.window(in)
	}
	if err := p.charge.Take(budget.Decompression, int64(plainBytes+window+window/2)); err != nil {
		return nil, err
	}
	if p.format.decompress == nil {
		return in, nil
	}
	unpacked := newStream(p.ctx, unpackedBlocks, blockBytes)
	p.start(func() {
		total := int64(0)
		open := func(in *bufio.Reader) (io.Reader, error) { return p.format.decompress(in, window) }
		unpacked.fill(&lazyReader{in: in, open: open}, func(n int) error {
			total += int64(n)
			return checkRatio(total, p.progress.Read.Load(), p.limits.Ratio)
		})
	})
	return unpacked, nil
}

func (p *pipeline) start(f func()) {
	p.group.Go(panics.Guard(p.log, panics.Models, f, func(err error) { p.fail(err) }))
}

// sourceReader distinguishes errors of the source from those of a decompressor.
type sourceReader struct{ in io.Reader }

// Read implements io.Reader.
func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && err != io.EOF {
		err = &sourceError{err}
	}
	return n, err
}

// lazyReader opens a decompressor in the goroutine that reads from it, because opening reads.
type lazyReader struct {
	in   *bufio.Reader
	open func(*bufio.Reader) (io.Reader, error)
	out  io.Reader
}

// Read implements io.Reader.
func (l *lazyReader) Read(p []byte) (int, error) {
	if l.out == nil {
		out, err := l.open(l.in)
		if err != nil {
			return 0, midway(err)
		}
		l.out = out
	}
	return l.out.Read(p)
}

// Sync makes everything below root durable, files, directories and names, with one system call for
// its whole file system.
func Sync(root *os.Root) error {
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := unix.Syncfs(int(directory.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: root.Name(), Err: err}
	}
	return nil
}
