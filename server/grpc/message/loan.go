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

// loan gives a response back when the transport has let go of all of its
// tensors that were lent to it.
//
// The transport frees a buffer when its bytes have been copied into the
// connection's write buffer, or when the stream is cleaned up. What it still has
// queued for a stream when the whole connection breaks it merely forgets; then
// the garbage collector finds the loan, and the cleanup gives the response back.
//
// A client that takes no bytes would keep the loan: its connection is closed when
// the time is up.
type loan struct {
	response *infer.Response
	overdue  Overdue
	size     int
	pending  *pending // made with the first buffer that is lent
}

// Overdue closes the connection of a client that does not read.
type Overdue struct {
	After time.Duration // for each MiB that has begun; 0 never
	Conn  io.Closer     // nil never
	Room  Room          // for encoded messages; nil: the heap, without a charge
	Log   zerolog.Logger
}

// Room lends charged memory for messages, until the transport has taken them.
type Room interface {
	// Lend returns n bytes or more, which Put takes back.
	Lend(n int) (*[]byte, error)
	mem.BufferPool
}

// lend returns room for n bytes. Put by the transport gives it back.
func (o *Overdue) lend(n int) (*[]byte, error) {
	if o.Room == nil {
		b := make([]byte, n) // bound: for trusted text
		return &b, nil
	}
	return o.Room.Lend(n)
}

// EncodeProto makes the message of m, for which it charges before.
func (o *Overdue) EncodeProto(m proto.Message) (*Encoded, error) {
	lent, err := o.lend(proto.Size(m))
	if err != nil {
		return nil, err
	}
	*lent, err = proto.MarshalOptions{}.MarshalAppend((*lent)[:0], m)
	return &Encoded{mem.BufferSlice{mem.NewBuffer(lent, o.Room)}}, err
}

// pending counts the buffers of a loan that are out. It poses as the pool
// that they return to.
type pending struct {
	response *infer.Response
	left     atomic.Int32 // and one more until all have been lent
	timer    *time.Timer  // nil if there is none
	cleanup  runtime.Cleanup
	log      zerolog.Logger
}

// lend wraps bytes of the response, more than the size that mem would not pool.
func (l *loan) lend(b []byte) mem.Buffer {
	if l.pending == nil {
		l.pending = &pending{response: l.response, log: l.overdue.Log}
		l.pending.left.Store(1)
		l.pending.cleanup = runtime.AddCleanup(l.pending, l.overdue.release, l.response)
	}
	l.pending.left.Add(1)
	l.size += len(b)
	b = b[:len(b):len(b)]
	return mem.NewBuffer(&b, l.pending)
}

// release gives a response back. It runs in goroutines that are not ours.
func (o Overdue) release(r *infer.Response) {
	panics.Guard(o.Log, panics.Request, r.Release, nil)()
}

// done says that nothing more is lent.
func (l *loan) done() {
	switch {
	case l.pending != nil:
		if conn := l.overdue.Conn; conn != nil && l.overdue.After > 0 {
			// The timer knows the connection, not the loan, which the garbage
			// collector has to find.
			l.pending.timer = panics.AfterFunc(l.overdue.Log, panics.Connection,
				l.overdue.After*time.Duration(1+l.size>>20), func() { _ = conn.Close() }, nil)
		}
		l.pending.Put(nil)
	case l.response != nil:
		l.response.Release()
	}
}

// Put takes one buffer back.
func (p *pending) Put(*[]byte) {
	if p.left.Add(-1) == 0 {
		p.cleanup.Stop()
		if p.timer != nil {
			p.timer.Stop()
		}
		panics.Guard(p.log, panics.Request, p.response.Release, nil)() // in the library's goroutine
	}
}

// Get is never called: nothing is allocated from a loan.
func (p *pending) Get(n int) *[]byte {
	b := make([]byte, n) // bound: never called
	return &b
}
