package grpc

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// sentReplies charges the heap memory of replies until the transport has copied them into its
// write buffer, or the connection has ended and its queued replies are dropped. It is the
// message.Buffers of its connection, and the pool that the buffers return to.
type sentReplies struct {
	account *budget.Account
	holder  *budget.Holder
	pool    *message.BufferPool
	out     atomic.Int64 // bytes; far below 0 once the connection has ended

	// overdue closes the connection if the client reads no reply for overdue.After.
	overdue message.Overdue
	watched atomic.Pointer[time.Timer] // nil: no replies at the last check
	moved   atomic.Bool                // a reply has left since the last check
}

const (
	// sentLeast is the largest buffer that the library does not return to a pool.
	sentLeast = 1 << 10
	// sentCost is the transport's memory of a call while the reply is queued.
	sentCost = 4 << 10
)

func (s *sentReplies) init(conn *connection) {
	g := conn.listener.front
	s.account, s.holder, s.pool = g.parts.Memory, &conn.member.Holder, &g.pool
	s.overdue = message.Overdue{After: g.cfg.WriteTimeout, Conn: conn, Buffers: s, Log: g.log}
}

// Lend implements message.Buffers.
func (s *sentReplies) Lend(n int) (*[]byte, error) {
	b := s.pool.Get(max(n, sentLeast+1))
	if err := s.take(int64(cap(*b)) + sentCost); err != nil {
		s.pool.Put(b)
		return nil, refused(n, err)
	}
	return b, nil
}

func (s *sentReplies) take(n int64) error {
	if err := s.holder.Hold(budget.Replies, n); err != nil {
		return err
	}
	if err := s.account.Take(budget.Replies, n); err != nil {
		s.holder.Drop(budget.Replies, n)
		return err
	}
	if s.out.Add(n) < 0 {
		s.give(n) // end has passed
	} else if s.watched.Load() == nil {
		s.watch()
	}
	return nil
}

// watch starts the timer that checks the client's progress.
func (s *sentReplies) watch() {
	if s.overdue.After <= 0 {
		return
	}
	timer := panics.AfterFunc(s.overdue.Log, panics.Connection, s.patience(), s.look, nil)
	if !s.watched.CompareAndSwap(nil, timer) || s.out.Load() < 0 {
		timer.Stop()
	}
}

func (s *sentReplies) patience() time.Duration {
	return s.overdue.After * time.Duration(1+max(s.out.Load(), 0)>>20)
}

func (s *sentReplies) look() {
	switch timer := s.watched.Load(); {
	case timer == nil || s.out.Load() < 0:
	case s.out.Load() == 0:
		s.watched.Store(nil)
		if s.out.Load() > 0 && s.watched.Load() == nil { // a reply whose take has still seen the timer
			s.watch()
		}
	case s.moved.Swap(false):
		timer.Reset(s.patience())
	default:
		_ = s.overdue.Conn.Close()
	}
}

func (s *sentReplies) give(n int64) {
	s.account.Give(budget.Replies, n)
	s.holder.Drop(budget.Replies, n)
}

func refused(n int, err error) error {
	return &message.OutOfMemory{Text: fmt.Sprintf("no memory for a response of %d bytes: %s", n, infer.AsError(err).Message)}
}

// own charges the buffers of a reply that are on the heap, and replaces them by ones that give the
// charge back. After an error all buffers have been freed.
func (s *sentReplies) own(buffers mem.BufferSlice) (mem.BufferSlice, error) {
	for i, b := range buffers {
		slice, ok := b.(mem.SliceBuffer)
		if !ok || len(slice) <= sentLeast {
			continue
		}
		if err := s.take(int64(len(slice)) + sentCost); err != nil {
			n := buffers.Len()
			buffers.Free()
			return nil, refused(n, err)
		}
		data := []byte(slice[:len(slice):len(slice)])
		buffers[i] = mem.NewBuffer(&data, responses{s})
	}
	return buffers, nil
}

// Put returns a buffer.
func (s *sentReplies) Put(b *[]byte) {
	s.left(cap(*b))
	s.pool.Put(b)
}

// left gives back the charge of a buffer of n bytes.
func (s *sentReplies) left(n int) {
	charged := int64(n) + sentCost
	if !s.moved.Load() {
		s.moved.Store(true)
	}
	if s.out.Add(-charged) >= 0 {
		s.give(charged)
	}
}

// responses is the pool of buffers with bytes of responses. They are not reused, as others may
// still read them.
type responses struct{ *sentReplies }

// Put returns a buffer.
func (r responses) Put(b *[]byte) { r.left(cap(*b)) }

// Get is never called: nothing is allocated from it.
func (s *sentReplies) Get(n int) *[]byte {
	b := make([]byte, n) // bound: never called
	return &b
}

// end gives back the remaining charge when the connection has ended.
func (s *sentReplies) end() {
	if n := s.out.Swap(math.MinInt64 / 2); n > 0 {
		s.give(n)
	}
	if timer := s.watched.Load(); timer != nil {
		timer.Stop()
	}
}
