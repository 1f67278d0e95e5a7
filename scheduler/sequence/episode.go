package sequence

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// episode is one request of a sequence.
type episode struct {
	handover.Delivery
	owner *Batcher
	own   *infer.Request // as the client sent it
	// request is own with control tensors and states, created when it is taken from its slot.
	request infer.Request
	task    backend.Task
	timing  scheduler.Timing
	expires int64 // ns of Now, unless its sequence has a slot by then; 0: never

	// Guarded by the scheduler's mu.
	scheduler.Neighbours[*episode] // in the sequence's queue

	seq      *sequence
	state    episodeState
	at       *lane      // of its current or last instance
	batch    *slotBatch // its batch (Direct)
	fresh    bool       // the first of its sequence for the instance's process
	values   *stateValues
	bytes    []*stateBytes        // of the values that it began with; nil: initial ones
	id       [8]byte              // bytes of the correlation id's control tensor
	moves    uint32               // number of times it was taken from a slot
	slot     *slot                // its slot, until the next request can follow (Oldest)
	returned bool                 // by the instance, answered or not (Oldest)
	inner    *scheduler.Submitted // its request in the lane's batcher (Oldest)
	life     uint32               // of its instance (Oldest)
}

type episodeState uint8

const (
	waiting   episodeState = 0 // in its sequence's queue
	executing episodeState = 1 // an instance or the lane's batcher has it
	ended     episodeState = 2
)

func (s *Batcher) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *episode {
	r := &episode{owner: s, own: req, Delivery: handover.Delivery{Send: send, Log: &s.config.Log}}
	r.task = backend.Task{Context: ctx, Request: &r.request, Send: r.deliver}
	t := backend.Now()
	r.timing = scheduler.Timing{BatchSize: req.BatchSize, Start: t, Queued: t}
	req.Queued(t)
	if req.TimeoutMicros > 0 && req.TimeoutMicros < uint64(batching.Forever/time.Microsecond) {
		r.expires = batching.MadeAt(req, t) + int64(req.TimeoutMicros)*int64(time.Microsecond)
	}
	return r
}

// deliver sends a response without its states, and notices the last one.
func (r *episode) deliver(response *infer.Response) {
	if s := r.owner; s.states != nil {
		err := panics.Run(s.config.Log, panics.Request, func() error { return s.keep(r, response) })
		if err != nil {
			response.Outputs, response.Err = nil, infer.AsError(err)
		}
	}
	if r.Respond(r.owner.config.Graph, response) {
		r.owner.end(r)
	}
}

// end removes a request whose last response has been sent.
func (s *Batcher) end(r *episode) {
	var then followUp
	s.mu.Lock()
	r.state = ended
	if r.batch != nil {
		s.answeredLocked(r, &then)
	}
	s.slotGoesOnLocked(r, &then)
	if seq := r.seq; seq != nil && seq.awaits == r {
		seq.awaits = nil
		if seq.First != nil && seq.slot == nil && !seq.backlogged {
			s.assignSlotLocked(seq, &then)
		}
	}
	s.outLocked(r)
	s.mu.Unlock()
	r.Finish()
	then.run(s)
}

// cancel ends the whole sequence of a request whose client has disconnected, if the request is next
// in its slot or the sequence has no slot. Behind another request, it does so when its turn comes.
// A model that has the request is told.
func (s *Batcher) cancel(r *episode) {
	var then followUp
	s.mu.Lock()
	var in backend.Instance
	var inner *scheduler.Submitted
	switch {
	case r.state == executing && s.oldest != nil:
		inner = r.inner
	case r.state == executing:
		in = r.at.Instance()
	case r.state == waiting && (r.Before == nil || r.seq.slot == nil):
		s.dropLocked(r.seq, &then)
	}
	s.mu.Unlock()
	if inner != nil {
		inner.Cancel()
	}
	backend.Cancel(in, &r.task)
	then.run(s)
}

// failure is a request that gets an error instead of an execution.
type failure struct {
	request *episode
	reason  scheduler.Reason
	err     error
}

// followUp collects the consequences of a change, which run after unlocking.
type followUp struct {
	pending int          // requests that no longer wait
	batches []*slotBatch // bound: the instances
	joins   []*episode   // requests for the batchers of their lanes; bound: the slots
	failed  []failure    // bound: the queued requests
	drained []func()     // bound: the instances
}

func (f *followUp) run(s *Batcher) {
	if f.pending != 0 {
		s.config.Observer.Pending(-f.pending)
	}
	for _, b := range f.batches {
		if b.denied != nil {
			b.deny()
			continue
		}
		handover.Give(s.config.Log, b.lane.Instance(), &b.batch)
		for _, r := range b.episodes {
			if r.task.Context.Err() != nil { // cancel may have come before the instance had it
				s.cancel(r)
			}
		}
	}
	for _, r := range f.joins {
		s.join(r)
	}
	for _, x := range f.failed {
		s.config.Observer.Failed(x.reason, x.request.timing.Start)
		x.request.deliver(infer.ErrorResponse(x.err))
	}
	for _, drained := range f.drained {
		drained()
	}
}

// fail answers a request that is in no queue.
func (f *followUp) fail(r *episode, reason scheduler.Reason, err error) {
	f.failed = append(f.failed, failure{r, reason, err})
}
