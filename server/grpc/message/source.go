package message

import (
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/budget"
)

const (
	// stepBytes is how much of a message is asked for at a time: enough that the
	// cost of asking does not count, little enough that what has been copied out
	// of it is still in the processor's cache when it is received into again.
	stepBytes = 128 << 10
	// skipBytes is that of a message that is passed over.
	skipBytes = 16 << 10
	// claimBytes bounds what is allocated because a length says so; for anything
	// longer an eighth of the bytes must have arrived first.
	claimBytes = 1 << 20
)

// source gives out the bytes of one message in the order of the wire, as
// they arrive. What it lends is valid until its next method is called.
type source struct {
	read   func(n int) (mem.BufferSlice, error)
	charge *budget.Charge // for the gathered bytes; their keeper gives it back

	paid   int             // bytes charged for pieces that the transport was asked for
	asked  int             // bytes of the message that were asked of the transport
	left   int             // bytes of the message that were not given out
	unread int             // bytes of it that were not asked of the transport
	queue  mem.BufferSlice // received; queue[0] holds cur
	cur    []byte          // rest of queue[0]
}

// reset begins a message of n bytes, of which got has been received already.
func (s *source) reset(n int, got mem.BufferSlice) {
	s.close()
	s.asked, s.left, s.unread, s.queue = 0, n, n-got.Len(), got
	if len(got) > 0 {
		s.cur = got[0].ReadOnlyData()
	}
}

// close gives back all pieces that were not given out. A small charge is left to its keeper.
func (s *source) close() {
	s.queue.Free()
	if s.paid > smallRoom {
		s.refund()
	}
	s.queue, s.cur, s.left, s.unread, s.paid = nil, nil, 0, 0, 0
}

// refund gives back what ask has charged.
func (s *source) refund() {
	s.charge.Give(budget.Bodies, int64(s.paid))
	s.paid = 0
}

// ask receives the next n bytes, for which it has charged before: the client may stop after any
// of them.
func (s *source) ask(n int) (mem.BufferSlice, error) {
	if n > s.paid {
		if err := s.charge.Take(budget.Bodies, int64(n-s.paid)); err != nil {
			return nil, AsNoRoom(err)
		}
		s.paid = n
	}
	got, err := s.read(n)
	if err == io.EOF { // inside a message
		err = io.ErrUnexpectedEOF
	}
	return got, err
}

// fill makes cur not empty. The caller has made sure that left is positive.
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

// uvarint takes a varint; it fails like protowire on what is no varint.
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

// take returns the next n bytes in one piece. own tells that they are the
// caller's to keep; else they are lent.
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
			// Grows with what has arrived, not with what was announced.
			grown := min(n, max(2*cap(b), stepBytes))
			if err := s.charge.Take(budget.Bodies, int64(grown-cap(b))); err != nil {
				return nil, false, AsNoRoom(err)
			}
			b = append(make([]byte, 0, grown), b...) // bound: charged
		}
		b = append(b, part...) // bound: there is room
		s.advance(len(part))
	}
	return b, true, nil
}

// copyTo fills dst.
func (s *source) copyTo(dst []byte) error {
	for len(dst) > 0 {
		if err := s.fill(); err != nil {
			return err
		}
		n := copy(dst, s.cur)
		s.advance(n)
		dst = dst[n:]
	}
	return nil
}

// await returns when an eighth of the next n bytes, if they are many, has been
// received. The bytes stay in the source.
func (s *source) await(n int) error {
	if n <= claimBytes {
		return nil
	}
	for got := s.left - s.unread; got < n/8; got = s.left - s.unread {
		step := min(s.unread, stepBytes)
		if err := s.charge.Take(budget.Transport, int64(step)); err != nil {
			return AsNoRoom(err)
		}
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

// skip passes over n bytes.
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
