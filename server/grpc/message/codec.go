package message

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Encoded is an encoded message.
type Encoded struct{ Buffers mem.BufferSlice }

// received is a message that is decoded later.
type received struct{ buffers mem.BufferSlice }

// Codec passes encoded messages through and encodes all others.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Marshal passes an *Encoded through and encodes a proto.Message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *Encoded:
		return v.Buffers, nil
	case proto.Message:
		b, err := proto.Marshal(v) // bound: replies of fixed size; others are Encoded
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("encode a %T: want a message", v)
}

// Unmarshal keeps the bytes. The library calls it only for messages that it has received whole.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	if !ok {
		return fmt.Errorf("decode into a %T: want a message", v)
	}
	r.buffers.Free()
	data.Ref()
	r.buffers = data
	return nil
}

// BufferPool lends the buffers for received frames. Unlike the library's own pool it does not clear
// them: a frame fills its buffer before it is read.
type BufferPool struct {
	sizes [poolClasses]sync.Pool // of *[]byte with capacity poolSmallest << index
}

const (
	poolSmallest = 1 << 11
	poolClasses  = 6 // up to 64 KiB; frames have 16 KiB at most
)

// class returns the index of the smallest buffers that hold n bytes.
func (*BufferPool) class(n int) int {
	return max(0, bits.Len(uint(max(n, 1)-1))-bits.Len(uint(poolSmallest-1)))
}

// Get implements mem.BufferPool.
func (p *BufferPool) Get(n int) *[]byte {
	class := p.class(n)
	if class >= poolClasses {
		b := make([]byte, n) // bound: a frame of 16 KiB
		return &b
	}
	if b, ok := p.sizes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, poolSmallest<<class) // bound: 64 KiB
	return &b
}

// Put implements mem.BufferPool.
func (p *BufferPool) Put(b *[]byte) {
	class := p.class(cap(*b))
	if class < poolClasses && cap(*b) == poolSmallest<<class {
		p.sizes[class].Put(b)
	}
}
