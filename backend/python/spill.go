package python

import (
	"errors"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// sendBody sends a frame, through a block if its body is long.
func (l *life) sendBody(kind ipc.Kind, id uint64, body []byte) error {
	if len(body) <= ipc.MaxInlineBody {
		return l.channel.Send(kind, id, body)
	}
	_, err := l.sendSpilled(kind, id, false, len(body), func(b []byte) { copy(b, body) })
	return err
}

// sendFilled sends a frame with a body of n bytes, which fill writes, through a
// block if it is long.
func (l *life) sendFilled(kind ipc.Kind, id uint64, n int, fill func([]byte)) error {
	if n > ipc.MaxInlineBody {
		_, err := l.sendSpilled(kind, id, false, n, fill)
		if errors.Is(err, shm.ErrExhausted) {
			return exhausted(l.encoder.pool, err)
		}
		return err
	}
	frame, err := l.channel.Begin(kind, id, n)
	if err != nil {
		return err
	}
	fill(frame[ipc.HeaderSize:])
	l.channel.Commit()
	return nil
}

// sendSpilled sends a frame whose body of n bytes, written by fill, lies in a
// block of the pool. It returns the frame's position.
func (l *life) sendSpilled(kind ipc.Kind, id uint64, ahead bool, n int, fill func([]byte)) (uint64, error) {
	block, err := l.encoder.pool.Alloc(n)
	if err != nil {
		return 0, err
	}
	fill(block.Bytes())
	ticket, ok := l.loans.Lend(block)
	block.Release()
	if !ok {
		return 0, ipc.ErrClosed
	}
	frame, err := l.channel.Begin(kind, id, ipc.DescriptorSize)
	if err != nil {
		_ = l.loans.Return(ticket)
		return 0, err
	}
	d := ipc.Descriptor{
		Type: uint8(infer.Uint8), Region: ipc.InRequests, Offset: block.Offset(), Length: uint64(n), Ticket: uint64(ticket),
	}
	d.Put(frame[ipc.HeaderSize:])
	ipc.SetSpilled(frame)
	if ahead {
		ipc.SetAhead(frame)
	}
	return l.channel.Commit(), nil
}
