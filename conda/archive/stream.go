package archive

import (
	"context"
	"io"
)

// stream hands bytes from one goroutine to another, in blocks. One goroutine calls fill,
// another Read.
//
// Ownership: a block belongs to the goroutine that received it. It goes from empty to
// fill, by full to Read, and back; there are never more than were made.
type stream struct {
	ctx   context.Context // of one unpacking, and so is the stream
	empty chan []byte     // sent by Read, which never waits: it has room for all blocks
	full  chan []byte     // sent and closed by fill
	err   error           // why full was closed: written before, read after

	block []byte // that Read is at
	rest  []byte // of it
}

// bound: the caller's constants
func newStream(ctx context.Context, blocks, size int) *stream {
	s := &stream{ctx: ctx, empty: make(chan []byte, blocks), full: make(chan []byte, blocks)}
	for range blocks {
		s.empty <- make([]byte, size)
	}
	return s
}

// fill reads source to its end or to its first error, which Read returns after the bytes before it.
// passed is called for each block before Read receives it, and may refuse it.
func (s *stream) fill(source io.Reader, passed func(n int) error) {
	defer close(s.full)
	for s.err == nil {
		var block []byte
		select {
		case block = <-s.empty:
		case <-s.ctx.Done():
			s.err = context.Cause(s.ctx)
			return
		}
		n := 0
		for n < len(block) && s.err == nil {
			var m int
			m, s.err = source.Read(block[n:])
			n += m
			if s.err == nil && s.ctx.Err() != nil {
				s.err = context.Cause(s.ctx)
			}
		}
		if err := passed(n); err != nil {
			s.err = err
			return
		}
		s.full <- block[:n] // has room for all blocks
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.block != nil {
			s.empty <- s.block[:cap(s.block)]
			s.block = nil
		}
		select {
		case block, more := <-s.full:
			if !more {
				return 0, s.err
			}
			s.block, s.rest = block, block
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
