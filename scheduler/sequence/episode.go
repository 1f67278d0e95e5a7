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
	"github.com/nereid-serving/nereid/scheduler/linked"
)

// episode is one request of a sequence.
type episode struct {
	handover.Recipient
	owner *Batcher
	own   *infer.Request // as it came
	// request is what the instance gets: the same with control tensors and state,
	// made when the request is taken from its slot.
	request infer.Request
	task    backend.Task
	timing  scheduler.Timing
	expires int64 // ns of Now, unless its sequence has a slot then; 0: never

	// Guarded by the scheduler's mu.
	linked.Neighbours[*episode] // in the sequence's queue

	seq      *sequence
	state    episodeState
	at       *lane      // whose instance has it, or had it last
	batch    *slotBatch // that it is part of
	fresh    bool       // the instance's process had nothing of its sequence before
	values   *stateValues
	id       [8]byte              // the correlation id as a control tensor's bytes
	moves    uint32               // how often it was taken from a slot
	slot     *slot                // that it was taken from, until the slot can go on (Oldest)
	returned bool                 // the instance is done with it, whether or not it is answered (Oldest)
	inner    *scheduler.Submitted // in its lane's batcher (Oldest)
	life     uint32               // of the instance that it was taken for (Oldest)
}

type episodeState uint8

const (
	waiting   episodeState = 0 // in its sequence's queue
	executing episodeState = 1 // an instance has it, or its batcher
	ended     episodeState = 2
)

func (s *Batcher) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *episode {
	r := &episode{owner: s, own: req, Recipient: handover.Recipient{Send: send, Log: &s.config.Log}}
	r.task = backend.Task{Context: ctx, Request: &r.request, Send: r.deliver}
	t := backend.Now()
	r.timing = scheduler.Timing{BatchSize: req.BatchSize, Start: t, Queued: t}
	req.Queued(t)
	if req.TimeoutMicros > 0 && req.TimeoutMicros < uint64(batching.Forever/time.Microsecond) {
		r.expires = batching.MadeAt(req, t) + int64(req.TimeoutMicros)*int64(time.Microsecond)
	}
	return r
}

// deliver hands a response up, without the states in it, and notices the last
// one.
func (r *episode) deliver(response *infer.Response) {
	if s := r.owner; s.states != nil {
		err := panics.Run(s.config.Log, panics.Request, func() error { return s.keep(r, response) })
		if err != nil {
			response.Outputs, response.Err = nil, infer.AsError(err)
		}
	}
	if r.Tell(r.owner.config.Graph, response) {
		r.owner.end(r)
	}
}

// end takes a request out whose last response has been handed up.
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
			s.placeLocked(seq, &then)
		}
	}
	s.outLocked()
	s.mu.Unlock()
	r.Dismiss()
	then.run(s)
}

// cancel ends a request whose client has gone, with all of its sequence, if it
// is next in its slot, or its sequence has none; where another one is before it,
// that is done when its turn comes. The model is told of a request that it has.
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
	if c, ok := in.(backend.Canceller); ok {
		c.Cancel(&r.task)
	}
	then.run(s)
}

// failure is a request that is answered with an error instead of being executed.
type failure struct {
	request *episode
	reason  scheduler.Reason
	err     error
}

// followUp is what follows from a change: it is done when nothing is locked.
type followUp struct {
	pending int // how many requests fewer wait for an instance
	batches []*slotBatch
	joins   []*episode // that go to the batchers of their lanes
	failed  []failure
	drained []func()
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
			if r.task.Context.Err() != nil { // the instance may not have had it when its client went
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

// fail answers a request that has been taken from its queue, or was never
// in one.
func (f *followUp) fail(r *episode, reason scheduler.Reason, err error) {
	f.failed = append(f.failed, failure{r, reason, err})
}
