package server

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// grpcEncoded is a message that is encoded already.
type grpcEncoded struct{ buffers mem.BufferSlice }

// grpcReceived is a message that is decoded later.
type grpcReceived struct{ buffers mem.BufferSlice }

// grpcCodec hands encoded messages through and encodes the others.
type grpcCodec struct{}

func (grpcCodec) Name() string { return "proto" }

func (grpcCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *grpcEncoded:
		return v.buffers, nil
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("encode a %T: want a message", v)
}

func (grpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*grpcReceived)
	if !ok {
		return fmt.Errorf("decode into a %T: want a message", v)
	}
	r.buffers.Free()
	data.Ref()
	r.buffers = data
	return nil
}

// grpcPool lends the buffers that frames are received into. Unlike the library's
// own it does not clear them: a frame fills its buffer before anyone reads it.
type grpcPool struct {
	sizes [grpcPoolClasses]sync.Pool // of *[]byte with capacity grpcPoolSmallest << index
}

const (
	grpcPoolSmallest = 1 << 11
	grpcPoolClasses  = 6 // up to 64 KiB; frames have 16 KiB at most
)

// class returns the index of the smallest buffers that hold n bytes.
func (*grpcPool) class(n int) int {
	return max(0, bits.Len(uint(max(n, 1)-1))-bits.Len(uint(grpcPoolSmallest-1)))
}

func (p *grpcPool) Get(n int) *[]byte {
	class := p.class(n)
	if class >= grpcPoolClasses {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.sizes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, grpcPoolSmallest<<class)
	return &b
}

func (p *grpcPool) Put(b *[]byte) {
	class := p.class(cap(*b))
	if class < grpcPoolClasses && cap(*b) == grpcPoolSmallest<<class {
		p.sizes[class].Put(b)
	}
}
