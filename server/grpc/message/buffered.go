package message

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// bufferedResponse releases a response when the transport has freed all buffers that were lent to
// it.
//
// The transport frees a buffer when it has copied the bytes into the connection's write buffer, or
// when the stream is cleaned up. When the whole connection breaks, it drops queued buffers without
// freeing them. Then the garbage collector finds it, and a cleanup releases the response.
//
// So bufferedResponse holds nothing of the response but its memory. A response may be part of
// something that refers to the RPC, and through it to the queued buffers: the collector would not
// find it.
//
// A client that does not read would keep it forever, so its connection is closed after a timeout.
type bufferedResponse struct {
	response *infer.Response
	overdue  Overdue
	size     int
	pending  *pending // made with the first buffer that is lent
}

// Overdue closes the connection of a client that does not read.
type Overdue struct {
	After   time.Duration // for each started MiB; 0: never
	Conn    io.Closer     // nil: never
	Buffers Buffers       // for encoded messages; nil: the heap, uncharged
	Log     zerolog.Logger
}

// Buffers lends charged memory for messages, until the transport has copied them.
type Buffers interface {
	// Lend returns at least n bytes. Put returns them.
	Lend(n int) (*[]byte, error)
	mem.BufferPool
}

// lend returns room for n bytes. The transport returns it with Put.
func (o *Overdue) lend(n int) (*[]byte, error) {
	if o.Buffers == nil {
		b := make([]byte, n) // bound: for trusted text
		return &b, nil
	}
	return o.Buffers.Lend(n)
}

// EncodeProto charges for and encodes m.
func (o *Overdue) EncodeProto(m proto.Message) (*Encoded, error) {
	lent, err := o.lend(proto.Size(m))
	if err != nil {
		return nil, err
	}
	*lent, err = proto.MarshalOptions{}.MarshalAppend((*lent)[:0], m) // bound: lent
	return &Encoded{mem.BufferSlice{mem.NewBuffer(lent, o.Buffers)}}, err
}

// pending counts the lent buffers of a response. It is the mem.BufferPool to which they return.
type pending struct {
	response *infer.Response
	left     atomic.Int32 // plus one until all have been lent
	timer    *time.Timer  // nil: no timeout
	cleanup  runtime.Cleanup
	log      zerolog.Logger
}

// lend wraps bytes of the response. There are too many for package mem to treat as unpooled.
func (l *bufferedResponse) lend(b []byte) mem.Buffer {
	if l.pending == nil {
		memory := memoryOf(l.response)
		l.pending = &pending{response: memory, log: l.overdue.Log}
		l.pending.left.Store(1)
		l.pending.cleanup = runtime.AddCleanup(l.pending, l.overdue.release, memory)
	}
	l.pending.left.Add(1)
	l.size += len(b)
	b = b[:len(b):len(b)]
	return mem.NewBuffer(&b, l.pending)
}

// memoryOf returns a response with the memory of r alone.
func memoryOf(r *infer.Response) *infer.Response {
	memory := &infer.Response{Slot: r.Slot, Held: r.Held, Outputs: make([]infer.Tensor, len(r.Outputs))} // bound: as in r
	for i := range r.Outputs {
		memory.Outputs[i].Memory = r.Outputs[i].Memory
	}
	return memory
}

// release releases a response. It runs in goroutines of the library or the runtime.
func (o Overdue) release(r *infer.Response) {
	panics.Guard(o.Log, panics.Request, r.Release, nil)()
}

// done reports that all buffers have been lent.
func (l *bufferedResponse) done() {
	switch {
	case l.pending != nil:
		if conn := l.overdue.Conn; conn != nil && l.overdue.After > 0 {
			// The timer refers to the connection, not the response, which would otherwise stay
			// reachable.
			l.pending.timer = panics.AfterFunc(l.overdue.Log, panics.Connection,
				l.overdue.After*time.Duration(1+l.size>>20), func() { _ = conn.Close() }, nil)
		}
		l.pending.Put(nil)
	case l.response != nil:
		l.response.Release()
	}
}

// Put counts a returned buffer.
func (p *pending) Put(*[]byte) {
	if p.left.Add(-1) == 0 {
		p.cleanup.Stop()
		if p.timer != nil {
			p.timer.Stop()
		}
		panics.Guard(p.log, panics.Request, p.response.Release, nil)() // in the library's goroutine
	}
}

// Get is never called: nothing is allocated from it.
func (p *pending) Get(n int) *[]byte {
	b := make([]byte, n) // bound: never called
	return &b
}
