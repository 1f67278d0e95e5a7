package python

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// Execute implements backend.Instance.
func (in *Instance) Execute(b *backend.Batch) {
	begin := ipc.Now()
	in.mu.Lock()
	l := in.life
	if in.state != Ready || l == nil {
		in.mu.Unlock()
		b.Done(b, backend.Report{Refused: true})
		return
	}
	in.moveLocked(Busy)
	l.number++
	number := l.number
	l.batch, l.begin = b, begin
	l.position.Store(math.MaxUint64)
	l.handles = l.handles[:0]
	for i, task := range b.Tasks {
		task.Handle = number<<32 | uint64(i)
		l.handles = append(l.handles, task.Handle)
	}
	in.mu.Unlock()

	err := l.send(b, number)
	in.mu.Lock()
	if l.batch == nil || l.number != number {
		// The life has ended meanwhile, or the stub has answered already.
		in.mu.Unlock()
		return
	}
	if err == nil {
		l.sent = ipc.Now()
		if limit := in.model.backend.config.ExecuteTimeout; limit > 0 {
			l.timer = time.AfterFunc(limit, func() { l.timeout(number, limit) })
		}
		in.mu.Unlock()
		return
	}
	var refused *infer.Error
	if !errors.As(err, &refused) {
		// The channel is broken or closed: the life ends, and its end gives the
		// batch back, for nothing of it was published.
		in.mu.Unlock()
		if !errors.Is(err, ipc.ErrClosed) {
			l.fail(err)
		}
		return
	}
	l.takeBatchLocked()
	in.moveLocked(Ready)
	in.mu.Unlock()
	now := ipc.Now()
	b.Done(b, backend.Report{Start: begin, ComputeStart: now, ComputeEnd: now, End: now, Err: refused})
	for _, task := range b.Tasks {
		task.Send(infer.ErrorResponse(refused))
	}
}

// send encodes and publishes the frame of a batch. An *infer.Error means that
// the batch cannot be sent but the channel is fine.
func (l *life) send(b *backend.Batch, number uint64) error {
	l.encoding.Lock()
	defer l.encoding.Unlock()
	l.position.Store(math.MaxUint64) // and not that of the batch before, if that was answered very fast
	var few [8]*infer.Request
	requests := few[:0]
	for _, task := range b.Tasks {
		requests = append(requests, task.Request)
	}
	e := &l.encoder
	if err := e.plan(requests, l.handles); err != nil {
		return err
	}
	var (
		position uint64
		err      error
	)
	if e.size > ipc.MaxInlineBody {
		position, err = l.sendSpilled(ipc.Execute, number, e.size, func(body []byte) {
			e.write(body, requests)
			l.encoded.Store(number)
		})
	} else {
		var frame []byte
		if frame, err = l.channel.Begin(ipc.Execute, number, e.size); err == nil {
			e.write(frame[ipc.HeaderSize:], requests)
			l.encoded.Store(number)
			position = l.channel.Commit()
		}
	}
	if err != nil {
		e.undo()
		return err
	}
	l.position.Store(position)
	return nil
}

// timeout ends a stub whose execute did not return in time.
func (l *life) timeout(number uint64, limit time.Duration) {
	l.in.mu.Lock()
	late := l.batch != nil && l.number == number
	l.in.mu.Unlock()
	if late {
		l.fail(fmt.Errorf("execute did not return within %s, stub is killed", limit))
	}
}

// Cancel implements backend.Canceller.
func (in *Instance) Cancel(task *backend.Task) {
	in.mu.Lock()
	l := in.life
	inside := l != nil && l.batch != nil && task.Handle>>32 == l.number
	in.mu.Unlock()
	if !inside {
		return
	}
	var body [8]byte
	for i := range body {
		body[i] = byte(task.Handle >> (8 * i))
	}
	if err := l.channel.Send(ipc.Cancel, 0, body[:]); err != nil {
		in.log.Debug().Err(err).Msg("cancellation was not sent")
	}
}
