package sequence

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/heap"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/roster"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// DefaultIdle is how long a sequence lives without a request by default.
const DefaultIdle = time.Second

// maxCorrelation is the length of the longest correlation id that is a text, in bytes. Front ends
// have the same limit, but models and the steps of ensembles send requests too.
const maxCorrelation = 128

// sequenceBytes is the memory of a sequence without the bytes of its states: with its id, its
// entries in lists, its slot, and the tensor of a state. tensorBytes is that of each further
// state's tensor, here and in a request.
const (
	sequenceBytes = 512
	tensorBytes   = 384
)

// Config configures a Batcher.
type Config struct {
	Model    string                        // for error texts
	Batching *kserve.ModelSequenceBatching // of the model's config
	MaxBatch int                           // max_batch_size; 0: inputs have no batch dimension
	States   []State                       // of Batching.State, with initial values
	Alike    *batching.Alike               // which requests fit into one batch
	Outputs  []string                      // outputs of the model's config
	// Decoupled reports whether the model may send any number of responses.
	Decoupled bool
	MaxQueue  int // queued requests; default DefaultMaxQueue
	Observer  scheduler.Observer
	Graph     *waitgraph.Graph // shared with all models that can call each other; default: a new one
	Log       zerolog.Logger
	// Allocate lends memory for the padding of the Direct strategy; nil: the Go heap.
	Allocate func(n int) ([]byte, infer.Memory, error)
	// Memory is charged for sequences and their states; nil charges nothing.
	Memory *budget.Account
	// For tests written for Triton: executions begin when this number of requests waits in slots
	// (Direct strategy), and in the backlog.
	HoldRequests, HoldBacklog int
}

// Batcher is the scheduler of a model with sequences.
type Batcher struct {
	config   Config
	oldest   *kserve.ModelSequenceBatching_StrategyOldest // nil: Direct
	slots    int                                          // per instance
	delay    int64                                        // ns; Direct
	fill     float32                                      // minimum_slot_utilization; Direct
	idle     int64                                        // ns; the longest time without a request
	controls *controls
	states   *states // nil without states

	mu        sync.Mutex
	census    scheduler.Census
	ids       map[infer.CorrelationID]*sequence // bound: sequences, which are charged
	generated uint64                            // the last id generated for a request without one
	backlog   scheduler.List[*sequence]         // sequences without a slot, first come, first served
	expiring  heap.Heap[*sequence]              // deadlines of sequences in the backlog
	// resting are the known sequences outside the backlog, ordered by their last requests: the
	// first is the next to expire.
	resting   scheduler.List[*sequence]
	alarm     *time.Timer // for the first of expiring and resting; nil before its first use
	rings     int64       // when alarm fires; 0: not set
	instances roster.Roster[*lane]
	free      heap.Heap[*slot]            // slots without a sequence, after their first use
	joined    map[*infer.Request]*episode // requests in the batchers of lanes (Oldest); bound: the slots
	held      bool                        // because of HoldRequests or HoldBacklog
	waiting   int                         // requests without an instance
}

// New returns a scheduler without instances.
func New(config Config) *Batcher {
	if config.MaxQueue <= 0 {
		config.MaxQueue = scheduler.DefaultMaxQueue
	}
	if config.Graph == nil {
		config.Graph = waitgraph.New(config.Log, waitgraph.Patience)
	}
	s := &Batcher{
		config: config, oldest: config.Batching.GetOldest(), slots: max(config.MaxBatch, 1),
		delay:    int64(batching.Micros(config.Batching.GetDirect().GetMaxQueueDelayMicroseconds())),
		fill:     config.Batching.GetDirect().GetMinimumSlotUtilization(),
		idle:     int64(batching.Micros(config.Batching.GetMaxSequenceIdleMicroseconds())),
		controls: newControls(config.Batching.GetControlInput(), config.MaxBatch > 0),
		states:   newStates(config.States, config.MaxBatch > 0, config.Outputs),
		ids:      make(map[infer.CorrelationID]*sequence),
		held:     config.HoldRequests > 0 && config.Batching.GetOldest() == nil || config.HoldBacklog > 0,
		joined:   make(map[*infer.Request]*episode),
	}
	s.instances = roster.New(s.newLane)
	s.expiring = heap.New(func(a, b *sequence) bool { return a.deadline < b.deadline }, func(q *sequence) *int { return &q.index })
	s.free = heap.New((*slot).before, func(at *slot) *int { return &at.index })
	if n := int(s.oldest.GetMaxCandidateSequences()); n > 0 {
		s.slots = n
	}
	if s.idle == 0 {
		s.idle = int64(DefaultIdle)
	}
	return s
}

// Infer implements infer.Handler.
func (s *Batcher) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := s.newRequest(ctx, req, send)
	r.Done = make(chan struct{}, 1)
	in, err := s.begin(r)
	if err != nil {
		return err
	}
	r.Await(ctx, req, in, func() { s.cancel(r) })
	return nil
}

// Submit implements infer.Submitter.
func (s *Batcher) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := s.newRequest(ctx, req, send)
	if _, err := s.begin(r); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.state != ended {
		r.WatchLocked(ctx, func() { s.cancel(r) })
	}
	return nil
}

// Begin implements scheduler.Scheduler. It names no instance.
func (s *Batcher) Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	return nil, s.Submit(ctx, req, send)
}

// begin accepts the request and returns the instance that has it, or nil while it is queued.
func (s *Batcher) begin(r *episode) (backend.Instance, error) {
	req := r.own
	switch {
	case req.BatchSize > 1:
		return nil, infer.Errorf(infer.InvalidArg, "inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", s.config.Model)
	case req.Correlation.IsZero() && !s.config.Batching.GetIterativeSequence():
		return nil, infer.Errorf(infer.InvalidArg, "inference request to model '%s' must specify a non-zero or non-empty correlation ID", s.config.Model)
	case len(req.Correlation.Text) > maxCorrelation:
		return nil, infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelation)
	}
	if err := r.EnterGraph(s.config.Graph, r, req); err != nil {
		return nil, err
	}
	var then followUp
	s.mu.Lock()
	if err := s.acceptLocked(r, &then); err != nil {
		s.mu.Unlock()
		r.LeaveGraph(s.config.Graph)
		return nil, err
	}
	s.mu.Unlock()
	then.run(s)
	s.mu.Lock()
	state, at, bls := r.state, r.at, r.BLS
	s.mu.Unlock()
	switch {
	case state == executing:
		return at.Instance(), nil
	case state == waiting && bls != nil:
		return nil, s.config.Graph.Check(bls)
	}
	return nil, nil
}

// acceptLocked adds a request to its sequence, which may begin with it.
func (s *Batcher) acceptLocked(r *episode, then *followUp) error {
	req := r.own
	if req.Correlation.IsZero() { // iterative
		s.generated++
		req.Correlation.Number, req.Flags = s.generated, infer.SequenceStart
	}
	lost := s.instances.HopelessLocked()
	seq, start := s.ids[req.Correlation], req.Flags&infer.SequenceStart != 0
	switch {
	case s.census.StoppedLocked() && (start || s.census.InFlightLocked() == 0):
		return infer.Errorf(infer.Unavailable, "Server is stopping, scheduler for model has stopped accepting new inference requests")
	case seq == nil && !start:
		return s.needsStart(req.Correlation)
	case (seq == nil || seq.slot == nil) && lost != nil:
		return backend.Unhealthy(lost.Name())
	case s.waiting >= s.config.MaxQueue:
		return infer.Errorf(infer.Unavailable, "%sExceeds maximum queue size", req.LogPrefix())
	case seq != nil && start:
		s.config.Log.Warn().Msgf("sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early.",
			idText(req.Correlation), s.config.Model)
	}
	if seq == nil {
		seq = &sequence{id: req.Correlation, known: true}
		if s.config.Memory != nil {
			n := int64(sequenceBytes + tensorBytes*max(len(s.config.States)-1, 0))
			if err := s.config.Memory.Take(budget.States, n); err != nil {
				return err
			}
			seq.charged = n
		}
		seq.id.Text = strings.Clone(seq.id.Text) // of a longer text, perhaps; bound: maxCorrelation
		s.ids[seq.id] = seq
	}
	s.census.EnterLocked()
	seq.open++
	s.joinLocked(r, seq, then)
	return nil
}

// joinLocked appends a request to a sequence.
func (s *Batcher) joinLocked(r *episode, seq *sequence, then *followUp) {
	seq.pushBack(r)
	s.waiting++
	s.config.Observer.Pending(1) // before an instance takes it
	if r.own.Flags&infer.SequenceEnd != 0 {
		s.forgetLocked(seq)
	} else {
		s.touchLocked(seq)
	}
	if seq.slot == nil && !seq.backlogged && seq.awaits == nil {
		s.assignSlotLocked(seq, then)
	} else if seq.slot != nil {
		s.advanceLocked(seq.slot, then)
	}
	if seq.backlogged {
		s.expireAtLocked(seq, r.expires)
	}
	s.releaseHoldLocked(then)
}

func (s *Batcher) needsStart(id infer.CorrelationID) *infer.Error {
	return infer.Errorf(infer.InvalidArg,
		"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", idText(id), s.config.Model)
}

// idText formats a correlation id for error texts.
func idText(id infer.CorrelationID) string {
	if id.Text != "" {
		return id.Text
	}
	return strconv.FormatUint(id.Number, 10)
}

// Stop implements Scheduler. While requests are in flight, sequences that have begun are served; no
// sequence begins.
func (s *Batcher) Stop(ctx context.Context) error {
	var then followUp
	s.mu.Lock()
	if first, drained := s.census.StopLocked(); first {
		if drained {
			s.drainedLocked()
		}
		s.endHoldLocked(&then)
		s.setAlarmLocked(backend.Now())
	}
	lanes, quiet := s.instances.MembersLocked(), s.census.QuietLocked()
	s.mu.Unlock()
	then.run(s)
	for _, l := range lanes {
		if l.inner != nil {
			l.inner.EndHold()
		}
	}
	return scheduler.Wait(ctx, quiet)
}

// drainedLocked stops all timers and refunds all sequences.
func (s *Batcher) drainedLocked() {
	for _, seq := range s.ids { // no request will end them
		s.refundLocked(seq)
	}
	if s.alarm != nil {
		s.alarm.Stop()
	}
	for _, l := range s.instances.MembersLocked() {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
}

// Drain implements Scheduler.
func (s *Batcher) Drain(ctx context.Context) error {
	s.mu.Lock()
	quiet := s.census.QuietLocked()
	s.mu.Unlock()
	return scheduler.Wait(ctx, quiet)
}

// InFlight implements Scheduler. Sequences without a request in flight do not count.
func (s *Batcher) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.census.InFlightLocked()
}

// outLocked counts a request that is no longer in flight.
func (s *Batcher) outLocked(r *episode) {
	s.dropBytesLocked(r.bytes)
	if r.seq.open--; !r.seq.known {
		s.refundLocked(r.seq)
	}
	if s.census.LeaveLocked() {
		s.drainedLocked()
	}
}
