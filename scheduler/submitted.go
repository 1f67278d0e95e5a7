package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
)

// Submitted is a request that another scheduler has a Batcher execute, and that it may
// take back. It is the sequence batcher's, whose slots share a Batcher for each
// instance.
type Submitted request

// Prepare makes a request that is counted with the times of timing. It allocates what
// Submit would; nothing waits before Enter.
func (d *Batcher) Prepare(ctx context.Context, req *infer.Request, send infer.Sender, timing Timing) *Submitted {
	r := d.newRequest(ctx, req, send)
	r.timing[0] = timing
	return (*Submitted)(r)
}

// Enter has the request wait in its Batcher, or be executed at once. It is called once.
func (s *Submitted) Enter() error {
	r := (*request)(s)
	if _, err := r.scheduler.begin(r); err != nil {
		return err
	}
	r.scheduler.cancelGone([]*request{r}) // its client may have gone before the batcher had it
	return nil
}

// Cancel ends the request if it waits, and else tells the model that has it.
func (s *Submitted) Cancel() {
	r := (*request)(s)
	r.scheduler.cancel(r)
}

// TakeBack takes the request from its line, if it waits.
func (s *Submitted) TakeBack() bool { return (*request)(s).TakeBack() }

// Discard ends a request that has been taken back. Nothing is sent.
func (s *Submitted) Discard() {
	r := (*request)(s)
	r.Send = func(response *infer.Response) { response.Release() }
	r.deliver(&infer.Response{Final: true}) // to no client
}

// EndHold lets what the Batcher holds back (Batching.StartWith) be executed.
func (d *Batcher) EndHold() {
	d.mu.Lock()
	d.hold = 0
	d.mu.Unlock()
	d.dispatch()
}
