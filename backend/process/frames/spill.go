package frames

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// Send sends a frame, using a block of the requests pool if the body is long.
func (e *Encoder) Send(kind ipc.Kind, id uint64, body []byte) error {
	if len(body) <= ipc.MaxInlineBody {
		return e.channel.Send(kind, id, body)
	}
	_, _, err := e.spill(kind, id, false, len(body), func(b []byte) { copy(b, body) })
	return err
}

// fill sends a frame with a body of n bytes, written by write, using a block if it is long.
func (e *Encoder) fill(kind ipc.Kind, id uint64, n int, write func([]byte)) error {
	if n > ipc.MaxInlineBody {
		_, _, err := e.spill(kind, id, false, n, write)
		return err
	}
	_, _, err := e.channel.Fill(kind, id, n, func(frame []byte) { write(frame[ipc.HeaderSize:]) })
	return err
}

// spill sends a frame whose body of n bytes, written by write, lies in a block of the pool. It
// returns the frame's position and the time of its publication. A lack of memory is a Shortage for
// the data to be sent; the channel is unchanged.
func (e *Encoder) spill(kind ipc.Kind, id uint64, ahead bool, n int, write func([]byte)) (position uint64, at int64, err error) {
	block, err := e.pool.Alloc(n)
	if err != nil {
		return 0, 0, outOfMemory(kind, n, err)
	}
	body := inBlock(block, n)
	// Once it is lent, the loan holds the block. Until then, and if write panics, only this
	// function does.
	defer body.release()
	write(body.data)
	// Lent before it is published: the stub may return the ticket before Commit has returned.
	if err := body.lend(e.loans, nil); err != nil {
		return 0, 0, err
	}
	// From Begin to Commit the channel's send lock is held: nothing here waits or fails.
	frame, err := e.channel.Begin(kind, id, ipc.DescriptorSize)
	if err != nil {
		body.takeBack(e.loans)
		return 0, 0, err
	}
	d := ipc.Descriptor{Type: uint8(infer.Uint8)}
	body.describe(&d)
	d.Put(frame[ipc.HeaderSize:])
	ipc.SetSpilled(frame)
	if ahead {
		ipc.SetAhead(frame)
	}
	position, at = e.channel.Commit()
	return position, at, nil
}

// outOfMemory returns the error for a frame's body without room in the requests pool.
func outOfMemory(kind ipc.Kind, n int, err error) error {
	return &Shortage{
		Client: infer.Errorf(infer.Unavailable, "there is no room for %d bytes of %s in the memory for requests: %v", n, kind, err),
		Reason: err,
	}
}

// Shortage is an error for clients whose reason is a lack of memory or descriptors.
type Shortage struct {
	Client *infer.Error
	Reason error
}

// Error returns the text for clients.
func (e *Shortage) Error() string { return e.Client.Message }

// Unwrap returns both, so that each is found in the error.
func (e *Shortage) Unwrap() []error { return []error{e.Client, e.Reason} }
