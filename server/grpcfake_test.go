package server

import (
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// grpcTestMemory is an Allocator that knows what was not given back.
type grpcTestMemory struct {
	blocks atomic.Int64
	limit  int64 // of blocks at once, 0 is none
	live   atomic.Int64
}

type grpcTestBlock struct {
	home *grpcTestMemory
	refs atomic.Int32
	data []byte
}

func (m *grpcTestMemory) alloc(n int) ([]byte, infer.Memory, error) {
	if live := m.live.Add(1); m.limit > 0 && live > m.limit {
		m.live.Add(-1)
		return nil, nil, infer.Errorf(infer.Unavailable, "the memory for requests is used up")
	}
	m.blocks.Add(1)
	b := &grpcTestBlock{home: m, data: make([]byte, n)}
	b.refs.Store(1)
	return b.data, b, nil
}

// check fails the test if a block is still held.
func (m *grpcTestMemory) check(t *testing.T) {
	t.Helper()
	if n := m.live.Load(); n != 0 {
		t.Errorf("%d of %d blocks were not released", n, m.blocks.Load())
	}
}

func (b *grpcTestBlock) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("a block is retained that was released")
	}
}

func (b *grpcTestBlock) Release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("a block is released once too often")
	case n == 0:
		clear(b.data) // whoever still reads it will notice
		b.home.live.Add(-1)
	}
}
