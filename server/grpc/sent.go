package grpc

import (
	"fmt"
	"math"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// sentReplies charges what the replies to unary RPCs take on the heap from when
// their handlers have returned until the transport has put them into its write
// buffer, or the connection has ended: what it has queued by then it forgets. It
// poses as the pool that the buffers return to.
type sentReplies struct {
	account *memory.Account
	out     atomic.Int64 // bytes; far below 0 once the connection has ended
}

// sentLeast is the largest buffer that the library would not give back to a
// pool.
const sentLeast = 1 << 10

// own takes over the buffers of a reply that lie on the heap. After an error all
// buffers have been given back.
func (s *sentReplies) own(buffers mem.BufferSlice) (mem.BufferSlice, error) {
	total := int64(0)
	for _, b := range buffers {
		if slice, ok := b.(mem.SliceBuffer); ok && len(slice) > sentLeast {
			total += int64(len(slice))
		}
	}
	if total == 0 {
		return buffers, nil
	}
	if err := s.account.Take(memory.Replies, total); err != nil {
		n := buffers.Len()
		buffers.Free()
		return nil, &message.NoRoom{Text: fmt.Sprintf("no memory for an answer of %d bytes: %s", n, infer.AsError(err).Message)}
	}
	if s.out.Add(total) < 0 {
		s.account.Give(memory.Replies, total) // end has passed
	}
	for i, b := range buffers {
		if slice, ok := b.(mem.SliceBuffer); ok && len(slice) > sentLeast {
			data := []byte(slice[:len(slice):len(slice)])
			buffers[i] = mem.NewBuffer(&data, s)
		}
	}
	return buffers, nil
}

// Put takes one buffer back.
func (s *sentReplies) Put(b *[]byte) {
	n := int64(cap(*b))
	if s.out.Add(-n) >= 0 {
		s.account.Give(memory.Replies, n)
	}
}

// Get is never called: nothing is allocated from it.
func (s *sentReplies) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// end gives back what is out, with the connection.
func (s *sentReplies) end() {
	if n := s.out.Swap(math.MinInt64 / 2); n > 0 {
		s.account.Give(memory.Replies, n)
	}
}
