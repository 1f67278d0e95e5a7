package process

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

// sendFilled sends a frame with a body of n bytes, which fill writes, through a
// block if it is long.
func (l *life) sendFilled(kind ipc.Kind, id uint64, n int, fill func([]byte)) error {
	if n > ipc.MaxInlineBody {
		_, err := l.sendSpilled(kind, id, false, n, fill)
		return err
	}
	_, err := l.channel.Fill(kind, id, n, func(frame []byte) { fill(frame[ipc.HeaderSize:]) })
	return err
}

// sendSpilled sends a frame whose body of n bytes, written by fill, lies in a
// block of the pool. It returns the frame's position. A lack of memory is an
// *infer.Error, about what was to be sent: the channel is as it was.
func (l *life) sendSpilled(kind ipc.Kind, id uint64, ahead bool, n int, fill func([]byte)) (uint64, error) {
	block, err := l.encoder.pool.Alloc(n)
	if err != nil {
		return 0, noRoom(kind, n, err)
	}
	filled := false
	defer func() {
		if !filled {
			block.Release()
		}
	}()
	fill(block.Bytes())
	filled = true
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

// noRoom says that a frame's body has no room in the request pool now.
func noRoom(kind ipc.Kind, n int, err error) error {
	return &shortage{
		client: infer.Errorf(infer.Unavailable, "there is no room for %d bytes of %s in the memory for requests: %v", n, kind, err),
		reason: err,
	}
}

// shortage is an error for clients whose reason is a lack of memory.
type shortage struct {
	client *infer.Error
	reason error
}

func (e *shortage) Error() string   { return e.client.Message }
func (e *shortage) Unwrap() []error { return []error{e.client, e.reason} }
