package grpc

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// encodedMessage is a message that is encoded already.
type encodedMessage struct{ buffers mem.BufferSlice }

// receivedMessage is a message that is decoded later.
type receivedMessage struct{ buffers mem.BufferSlice }

// codec hands encoded messages through and encodes the others.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *encodedMessage:
		return v.buffers, nil
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("encode a %T: want a message", v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*receivedMessage)
	if !ok {
		return fmt.Errorf("decode into a %T: want a message", v)
	}
	r.buffers.Free()
	data.Ref()
	r.buffers = data
	return nil
}

// bufferPool lends the buffers that frames are received into. Unlike the library's
// own it does not clear them: a frame fills its buffer before anyone reads it.
type bufferPool struct {
	sizes [poolClasses]sync.Pool // of *[]byte with capacity poolSmallest << index
}

const (
	poolSmallest = 1 << 11
	poolClasses  = 6 // up to 64 KiB; frames have 16 KiB at most
)

// class returns the index of the smallest buffers that hold n bytes.
func (*bufferPool) class(n int) int {
	return max(0, bits.Len(uint(max(n, 1)-1))-bits.Len(uint(poolSmallest-1)))
}

func (p *bufferPool) Get(n int) *[]byte {
	class := p.class(n)
	if class >= poolClasses {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.sizes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, poolSmallest<<class)
	return &b
}

func (p *bufferPool) Put(b *[]byte) {
	class := p.class(cap(*b))
	if class < poolClasses && cap(*b) == poolSmallest<<class {
		p.sizes[class].Put(b)
	}
}
