package message

import (
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/budget"
)

const (
	// stepBytes is the size of one read of a message: large enough that its overhead does not
	// matter, small enough that its buffers are still in the processor's cache when they are used
	// again.
	stepBytes = 128 << 10
	// skipBytes is the size of one read of a message that is skipped.
	skipBytes = 16 << 10
	// claimBytes is the most that is allocated on the strength of an announced length. Beyond
	// that, an eighth of the bytes must have arrived first.
	claimBytes = 1 << 20
)

// source returns the bytes of one message in order, as they arrive. Borrowed bytes are valid until
// its next method is called.
type source struct {
	read   func(n int) (mem.BufferSlice, error)
	charge *budget.Charge // for collected bytes; the owner of the charge gives it back

	paid    int             // bytes charged for reads
	awaited int             // bytes charged by await
	asked   int             // bytes of the message requested from the transport
	left    int             // bytes of the message not returned yet
	unread  int             // bytes of the message not requested yet
	queue   mem.BufferSlice // received; queue[0] holds cur
	cur     []byte          // rest of queue[0]
}

// reset starts a message of n bytes. got has been received already.
func (s *source) reset(n int, got mem.BufferSlice) {
	s.close()
	s.asked, s.left, s.unread, s.queue = 0, n, n-got.Len(), got
	if len(got) > 0 {
		s.cur = got[0].ReadOnlyData()
	}
}

// close frees all pieces that were not returned. It leaves a small charge to the charge's owner.
func (s *source) close() {
	s.queue.Free()
	if s.paid > smallBuffer {
		s.refund()
	}
	s.queue, s.cur, s.left, s.unread, s.paid, s.awaited = nil, nil, 0, 0, 0, 0
}

// refund gives back the charge of ask.
func (s *source) refund() {
	s.charge.Give(budget.Bodies, int64(s.paid))
	s.paid = 0
}

// ask charges for the next n bytes and then reads them, since the client may stop after any byte.
func (s *source) ask(n int) (mem.BufferSlice, error) {
	if n > s.paid {
		if err := s.charge.Take(budget.Bodies, int64(n-s.paid)); err != nil {
			return nil, AsOutOfMemory(err)
		}
		s.paid = n
	}
	got, err := s.read(n)
	if err == io.EOF { // inside a message
		err = io.ErrUnexpectedEOF
	}
	return got, err
}

// fill makes cur non-empty. left must be positive.
func (s *source) fill() error {
	for len(s.cur) == 0 {
		if len(s.queue) > 0 {
			s.queue[0].Free()
			s.queue[0] = nil
			s.queue = s.queue[1:]
		}
		if len(s.queue) == 0 {
			if s.unread == 0 {
				return errUnparsable
			}
			n := min(s.unread, stepBytes)
			if s.charge == nil {
				n = min(n, skipBytes)
			}
			got, err := s.ask(n)
			if err != nil {
				return err
			}
			s.queue, s.unread = got, s.unread-n
			if n == 0 || len(got) == 0 {
				return io.ErrUnexpectedEOF
			}
		}
		s.cur = s.queue[0].ReadOnlyData()
	}
	return nil
}

func (s *source) advance(n int) {
	s.cur, s.left = s.cur[n:], s.left-n
}

// uvarint reads a varint. It rejects the same input as protowire.
func (s *source) uvarint() (uint64, error) {
	if v, n := protowire.ConsumeVarint(s.cur); n > 0 {
		s.advance(n)
		return v, nil
	}
	var b [10]byte
	for i := range b {
		if s.left == 0 {
			return 0, errUnparsable
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
		b[i] = s.cur[0]
		s.advance(1)
		if b[i] < 0x80 {
			v, n := protowire.ConsumeVarint(b[:i+1])
			if n < 0 {
				break // the tenth byte goes beyond 64 bits
			}
			return v, nil
		}
	}
	return 0, errUnparsable
}

// take returns the next n bytes in one piece. The caller may keep them if own is true; otherwise
// they are borrowed.
func (s *source) take(n int) (b []byte, own bool, err error) {
	if n > s.left {
		return nil, false, errUnparsable
	}
	if n == 0 {
		return nil, false, nil
	}
	if len(s.cur) == 0 {
		if err := s.fill(); err != nil {
			return nil, false, err
		}
	}
	if n <= len(s.cur) {
		b = s.cur[:n]
		s.advance(n)
		return b, false, nil
	}
	for len(b) < n {
		if err := s.fill(); err != nil {
			return nil, false, err
		}
		part := s.cur[:min(len(s.cur), n-len(b))]
		if len(b)+len(part) > cap(b) {
			// The buffer grows with the bytes that have arrived, not with the announced length.
			grown := min(n, max(2*cap(b), stepBytes))
			if err := s.charge.Take(budget.Bodies, int64(grown-cap(b))); err != nil {
				return nil, false, AsOutOfMemory(err)
			}
			b = append(make([]byte, 0, grown), b...) // bound: charged
		}
		b = append(b, part...) // bound: there is room
		s.advance(len(part))
	}
	return b, true, nil
}

// copyTo fills dst, with the bytes that await has awaited first.
func (s *source) copyTo(dst []byte) error {
	for len(dst) > 0 {
		if err := s.fill(); err != nil {
			return err
		}
		n := copy(dst, s.cur)
		s.advance(n)
		dst = dst[n:]
	}
	s.charge.Give(budget.Transport, int64(s.awaited))
	s.awaited = 0
	return nil
}

// await returns when an eighth of the next n bytes has arrived, at once if n is small. The bytes
// stay in the source.
func (s *source) await(n int) error {
	if n <= claimBytes {
		return nil
	}
	for got := s.left - s.unread; got < n/8; got = s.left - s.unread {
		step := min(s.unread, stepBytes)
		if err := s.charge.Take(budget.Transport, int64(step)); err != nil {
			return AsOutOfMemory(err)
		}
		s.awaited += step
		more, err := s.ask(step)
		if err != nil {
			return err
		}
		s.queue, s.unread = append(s.queue, more...), s.unread-more.Len() // bound: charged
		if len(s.queue) == len(more) {                                    // nothing was queued before
			s.cur = s.queue[0].ReadOnlyData()
		}
	}
	return nil
}

// skip skips n bytes.
func (s *source) skip(n int) error {
	if n > s.left {
		return errUnparsable
	}
	for n > 0 {
		if err := s.fill(); err != nil {
			return err
		}
		k := min(n, len(s.cur))
		s.advance(k)
		n -= k
	}
	return nil
}
