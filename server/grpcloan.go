package server

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/nereid-serving/nereid/infer"
)

// grpcLoan gives a response back when the transport has let go of all of its
// tensors that were lent to it.
//
// The transport frees a buffer when its bytes have been copied into the
// connection's write buffer, or when the stream is cleaned up. What it still has
// queued for a stream when the whole connection breaks it merely forgets; then
// the garbage collector finds the loan, and the cleanup gives the response back.
type grpcLoan struct {
	response *infer.Response
	pending  *grpcPending // made with the first buffer that is lent
}

// grpcPending counts the buffers of a loan that are out. It poses as the pool
// that they return to.
type grpcPending struct {
	response *infer.Response
	left     atomic.Int32 // and one more until all have been lent
	cleanup  runtime.Cleanup
}

// lend wraps bytes of the response, more than the size that mem would not pool.
func (l *grpcLoan) lend(b []byte) mem.Buffer {
	if l.pending == nil {
		l.pending = &grpcPending{response: l.response}
		l.pending.left.Store(1)
		l.pending.cleanup = runtime.AddCleanup(l.pending, (*infer.Response).Release, l.response)
	}
	l.pending.left.Add(1)
	b = b[:len(b):len(b)]
	return mem.NewBuffer(&b, l.pending)
}

// done says that nothing more is lent.
func (l *grpcLoan) done() {
	switch {
	case l.pending != nil:
		l.pending.Put(nil)
	case l.response != nil:
		l.response.Release()
	}
}

// Put takes one buffer back.
func (p *grpcPending) Put(*[]byte) {
	if p.left.Add(-1) == 0 {
		p.cleanup.Stop()
		p.response.Release()
	}
}

// Get is never called: nothing is allocated from a loan.
func (p *grpcPending) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}
