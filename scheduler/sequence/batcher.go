package sequence

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/linked"
	"github.com/nereid-serving/nereid/scheduler/roster"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// DefaultIdle is how long a sequence lives without a request if nothing
// else is said.
const DefaultIdle = time.Second

// Config sets up a Batcher.
type Config struct {
	Model    string                        // for error texts
	Batching *kserve.ModelSequenceBatching // as the model's config has it
	MaxBatch int                           // the model's max_batch_size; 0: inputs have no batch dimension
	States   []State                       // of Batching.State, with their first values
	Alike    *batching.Alike               // which requests can be in one batch
	Outputs  []string                      // of the model's config: what clients get
	// Decoupled is true if the model may answer a request any number of times.
	Decoupled bool
	MaxQueue  int // requests that may wait; default DefaultMaxQueue
	Observer  scheduler.Observer
	Graph     *waitgraph.Graph // shared with what its models can call; default one of its own
	Log       zerolog.Logger
	// Allocate lends memory for the padding of the Direct strategy; nil: it lies on
	// the Go heap.
	Allocate func(n int) ([]byte, infer.Memory, error)
	// Memory is the account of states; nil: they are not charged.
	Memory *budget.Account
	// For tests that are written for Triton: nothing is executed before so many
	// requests wait in slots (Direct strategy), and so many in the backlog.
	HoldRequests, HoldBacklog int
}

// Batcher is the scheduler of a model with sequences.
type Batcher struct {
	config   Config
	oldest   *kserve.ModelSequenceBatching_StrategyOldest // nil: Direct
	slots    int                                          // of each instance
	delay    int64                                        // ns, of Direct
	fill     float32                                      // minimum_slot_utilization of Direct
	idle     int64                                        // ns that a sequence may be idle
	controls *controls
	states   *states // nil if there is none

	mu        sync.Mutex
	census    scheduler.Census
	ids       map[infer.CorrelationID]*sequence
	generated uint64                 // ids given to requests that came without
	backlog   linked.List[*sequence] // sequences without a slot, in the order in which they get one
	expiring  sequenceDeadlines      // of those in the backlog that have one
	// resting are those in ids that are not in the backlog, in the order of their
	// last requests: the first is the next whose time is over.
	resting   linked.List[*sequence]
	alarm     *time.Timer // for the first of expiring and resting; nil before it was needed
	rings     int64       // when it does, 0 if it is not set
	instances roster.Roster[*lane]
	free      freeSlots
	joined    map[*infer.Request]*episode // that the batchers of lanes have (Oldest)
	held      bool                        // by HoldRequests and HoldBacklog
	waiting   int                         // requests that no instance has
}

// New makes a scheduler without instances.
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
		census:   scheduler.NewCensus(),
		joined:   make(map[*infer.Request]*episode),
	}
	s.instances = roster.New(s.newLane)
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

// begin takes the request in and returns the instance that it has been handed
// to, nil if it waits.
func (s *Batcher) begin(r *episode) (backend.Instance, error) {
	req := r.own
	switch {
	case req.BatchSize > 1:
		return nil, infer.Errorf(infer.InvalidArg, "inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", s.config.Model)
	case req.Correlation.IsZero() && !s.config.Batching.GetIterativeSequence():
		return nil, infer.Errorf(infer.InvalidArg, "inference request to model '%s' must specify a non-zero or non-empty correlation ID", s.config.Model)
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

// acceptLocked puts a request into its sequence, which may begin with it.
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
		seq = &sequence{id: req.Correlation, known: true, heapAt: -1}
		s.ids[req.Correlation] = seq
	}
	s.census.EnterLocked()
	s.joinLocked(r, seq, then)
	return nil
}

// joinLocked puts a request at the end of a sequence.
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
		s.placeLocked(seq, then)
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

// idText prints a correlation id as error texts do.
func idText(id infer.CorrelationID) string {
	if id.Text != "" {
		return id.Text
	}
	return strconv.FormatUint(id.Number, 10)
}

// Stop implements Scheduler. While requests are in flight, those of sequences that
// have begun are served; no sequence begins.
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
	lanes := s.instances.MembersLocked()
	s.mu.Unlock()
	then.run(s)
	for _, l := range lanes {
		if l.inner != nil {
			l.inner.EndHold()
		}
	}
	return scheduler.Wait(ctx, s.census.Drained())
}

// drainedLocked ends what goes on by itself.
func (s *Batcher) drainedLocked() {
	for _, seq := range s.ids { // which no request ends any more
		s.unchargeLocked(seq.values)
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

// InFlight implements Scheduler. A sequence of which no request is in flight does
// not count.
func (s *Batcher) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.census.InFlightLocked()
}

// outLocked counts a request that is in flight no more.
func (s *Batcher) outLocked() {
	if s.census.LeaveLocked() {
		s.drainedLocked()
	}
}
