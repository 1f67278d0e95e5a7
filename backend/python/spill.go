package python

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// sendBody sends a frame, through a block if its body is long.
func (l *life) sendBody(kind ipc.Kind, id uint64, body []byte) error {
	if len(body) <= ipc.MaxInlineBody {
		return l.channel.Send(kind, id, body)
	}
	_, err := l.sendSpilled(kind, id, false, len(body), func(b []byte) { copy(b, body) })
	return err
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
