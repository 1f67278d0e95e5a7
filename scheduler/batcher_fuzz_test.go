package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// FuzzBatcher runs a batcher of any config with clients that send, leave and wait, and instances
// that are lost and restarted. It checks that each accepted request gets one last response, that no
// batch is too large or mixes unlike requests, that each priority level is served in order, and
// that no request waits longer than the config allows.
func FuzzBatcher(f *testing.F) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 5))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) { newServing(t, data).run() })
	})
}

// TestRandomBatchesReachEveryCase checks that the random choices of FuzzBatcher reach every case.
func TestRandomBatchesReachEveryCase(t *testing.T) {
	var total served
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 6))
		data := make([]byte, 500)
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		synctest.Test(t, func(t *testing.T) {
			s := newServing(t, data)
			s.run()
			total.answered += s.answered
			total.failed += s.failed
			total.joined += s.joined
			total.refused += s.refused
			total.back += s.back
			total.waited += s.waited
		})
	}
	t.Logf("%+v", total)
	if total.answered < 2000 || total.failed < 100 || total.joined < 200 || total.refused < 20 || total.back < 50 || total.waited < 500 {
		t.Errorf("the random configs try too little: %+v", total)
	}
}

// served counts requests by their outcome.
type served struct {
	answered, failed, refused int
	joined                    int // executed in a batch with others
	back                      int // refused by an instance
	waited                    int // times that an instance waited for its turn
}

// serving turns bytes into a batcher and its events.
type serving struct {
	choices
	t        *testing.T
	batching *batching.Rules
	d        *scheduler.Batcher
	limiter  *ratelimit.Limiter // nil: instances do not take turns
	events   backend.Events     // d, or the limiter in front of it
	counts   counter

	mu        sync.Mutex
	asked     map[string]*client
	given     []string // ids in the order in which instances first got them
	answers   []string // ids in the order of their last responses
	instances []*worker
	stirred   bool // an instance refused a batch, so that the original order no longer applies
	served
}

// client is a request of a serving and its outcome.
type client struct {
	number  int
	request *infer.Request
	since   time.Time
	cancel  context.CancelFunc
	left    bool // its client has disconnected
	queued  bool // no instance has it or has returned from it
	finals  int
	turns   int
}

// worker is an instance of a serving.
type worker struct {
	of      *serving
	name    string
	ahead   bool
	down    bool
	batches []*backend.Batch
}

func (w *worker) Name() string                { return w.name }
func (w *worker) Ready(context.Context) error { return nil }

func (w *worker) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pipeliner: w, GroupMember: w}
}

// Device and Group implement backend.GroupMember.
func (*worker) Device() int32 { return 0 }
func (*worker) Group() *kserve.ModelInstanceGroup {
	return &kserve.ModelInstanceGroup{RateLimiter: &kserve.ModelRateLimiter{Resources: []*kserve.ModelRateLimiter_Resource{{Name: "R", Count: 1}}}}
}

func (w *worker) Ahead() bool {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return w.ahead && len(w.batches) < 2
}

func (w *worker) Withdraw() {
	w.of.mu.Lock()
	if len(w.batches) < 2 {
		w.of.mu.Unlock()
		return
	}
	b := w.batches[1]
	w.batches = w.batches[:1]
	w.of.goesBack(b)
	w.of.mu.Unlock()
	b.Done(b, backend.Report{Refused: true, Withdrawn: true})
}

func (w *worker) Execute(b *backend.Batch) {
	s := w.of
	s.mu.Lock()
	if w.down {
		s.goesBack(b)
		s.mu.Unlock()
		b.Done(b, backend.Report{Refused: true})
		return
	}
	defer s.mu.Unlock()
	w.batches = append(w.batches, b)
	if len(w.batches) > 2 || len(w.batches) > 1 && !w.ahead {
		s.t.Errorf("instance %s was given batch %d", w.name, len(w.batches))
	}
	s.check(b)
}

// goesBack notes that an instance returns a batch that it has not executed.
func (s *serving) goesBack(b *backend.Batch) {
	s.stirred = true
	s.back += len(b.Tasks)
	for _, task := range b.Tasks {
		s.asked[task.Request.ID].queued = true
	}
}

// check checks a new batch.
func (s *serving) check(b *backend.Batch) {
	first := s.asked[b.Tasks[0].Request.ID]
	total, bytes := int64(0), 0
	for _, task := range b.Tasks {
		c := s.asked[task.Request.ID]
		c.queued = false
		total += max(c.request.BatchSize, 1)
		bytes += len(c.request.Inputs[0].Data)
		if s.batching.Alike != nil && !s.batching.Alike.Equal(first.request, c.request) {
			s.t.Errorf("requests %d and %d are in one batch", first.number, c.number)
		}
		if c.turns++; c.turns == 1 {
			s.given = append(s.given, task.Request.ID)
		}
	}
	if len(b.Tasks) > 1 {
		s.joined += len(b.Tasks)
		if total > s.batching.MaxSize {
			s.t.Errorf("a batch of %d, where the largest is %d", total, s.batching.MaxSize)
		}
		if v, is := s.batching.Strategy.(bounded); is && bytes > v.bytes {
			s.t.Errorf("a batch of %d bytes, where the strategy allows %d", bytes, v.bytes)
		}
	}
	// Each level is served in order, except for requests that came back or are late.
	if s.stirred || s.batching.Policy.GetTimeoutAction() == kserve.ModelQueuePolicy_DELAY {
		return
	}
	for _, task := range b.Tasks {
		c := s.asked[task.Request.ID]
		for _, other := range s.asked {
			if s.batching.LevelOf(other.request.Priority) == s.batching.LevelOf(c.request.Priority) &&
				other.number < c.number && other.turns == 0 && other.finals == 0 && s.waits(other) {
				s.t.Errorf("request %d was executed before %d", c.number, other.number)
			}
		}
	}
}

// waits reports whether a request must still be waiting: its client cannot have left and it cannot
// have expired.
func (s *serving) waits(c *client) bool {
	deadline := batching.Micros(c.request.TimeoutMicros)
	return deadline == 0 && s.batching.Policy.GetDefaultTimeoutMicroseconds() == 0 && c.request.ID[0] != 'x'
}

func newServing(t *testing.T, data []byte) *serving {
	s := &serving{choices: choices{data}, t: t, asked: map[string]*client{}}
	b := &batching.Rules{MaxSize: int64(s.pick(7)), PreserveOrder: s.pick(4) == 0, Policy: &kserve.ModelQueuePolicy{}}
	for size := range b.MaxSize {
		if s.pick(3) == 0 {
			b.Preferred = append(b.Preferred, size+1)
		}
	}
	if s.pick(2) == 0 {
		b.MaxDelay = time.Duration(s.pick(30)) * time.Millisecond
	}
	if !b.PreserveOrder && s.pick(3) == 0 {
		b.Levels = uint64(1 + s.pick(3))
		b.DefaultLevel = b.Levels
	}
	switch s.pick(4) {
	case 0:
		b.Policy.DefaultTimeoutMicroseconds = uint64(1+s.pick(20)) * 1000
		b.Policy.AllowTimeoutOverride = s.pick(2) == 0
		if !b.PreserveOrder && s.pick(2) == 0 {
			b.Policy.TimeoutAction = kserve.ModelQueuePolicy_DELAY
		}
	case 1:
		b.Policy.MaxQueueSize = uint32(s.pick(6))
	}
	if s.pick(3) == 0 {
		b.Alike = batching.NewAlike(parseConfig(s.t, `input { name: "A" dims: -1 }`))
	}
	if s.pick(5) == 0 {
		b.Strategy = bytesAtMost(s.pick(6))
	}
	s.batching = b
	s.d = scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: &s.counts, Batching: b})
	s.events = s.d
	if s.pick(3) == 0 {
		s.limiter = ratelimit.New([]ratelimit.Resource{{Name: "R", Count: int64(1 + s.pick(2)), Device: ratelimit.AnyDevice}})
		if _, err := s.limiter.Reserve([]*kserve.ModelInstanceGroup{(*worker)(nil).Group()}); err != nil {
			t.Fatal(err)
		}
		s.events = s.limiter.Events(s.d)
	}
	for i := range 1 + s.pick(3) {
		w := &worker{of: s, name: fmt.Sprint(i), ahead: s.pick(3) == 0}
		s.instances = append(s.instances, w)
		s.events.Available(w)
	}
	return s
}

func (s *serving) run() {
	for n := 0; len(s.data) > 0; n++ {
		w := s.instances[s.pick(len(s.instances))]
		switch s.pick(10) {
		case 0, 1, 2, 3:
			s.ask(n)
		case 4:
			time.Sleep(time.Duration(s.pick(10)) * time.Millisecond)
		case 5, 6, 7:
			s.end(w)
		case 8:
			s.change(w)
		case 9:
			for _, c := range s.asked {
				if c.number == n-1-s.pick(5) && c.request.ID[0] == 'x' {
					c.left = true
					c.cancel()
				}
			}
		}
		synctest.Wait()
		s.checkForgotten()
	}
	s.finish()
}

func (s *serving) ask(number int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	c := &client{number: number, since: time.Now(), cancel: cancel, queued: true}
	c.request = &infer.Request{
		ID: fmt.Sprint(number), BatchSize: int64(1 + s.pick(3)), Priority: uint64(s.pick(5)),
		Inputs: []infer.Tensor{{Name: "A", Shape: []int64{1, int64(s.pick(2))}, Data: make([]byte, s.pick(3))}},
	}
	if s.pick(4) == 0 {
		c.request.ID = "x" + c.request.ID // its client may leave
	}
	if s.pick(4) == 0 {
		c.request.TimeoutMicros = uint64(s.pick(15)) * 1000
	}
	if most := max(s.batching.MaxSize, 1); c.request.BatchSize > most {
		c.request.BatchSize = most
	}
	s.mu.Lock()
	s.asked[c.request.ID] = c
	s.mu.Unlock()
	err := s.d.Submit(ctx, c.request, func(r *infer.Response) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.finals++; c.finals > 1 {
			s.t.Errorf("request %d was answered again", number)
		}
		s.answers = append(s.answers, c.request.ID)
		s.answered++
		if r.Err != nil {
			s.failed++
		}
	})
	if err != nil {
		s.mu.Lock()
		delete(s.asked, c.request.ID)
		s.refused++
		s.mu.Unlock()
		cancel()
	}
}

// end ends the execution of an instance.
func (s *serving) end(w *worker) {
	s.mu.Lock()
	if len(w.batches) == 0 {
		s.mu.Unlock()
		return
	}
	b := w.batches[0]
	w.batches = w.batches[1:]
	s.mu.Unlock()
	b.Done(b, backend.Report{Executed: true})
	for _, i := range rand.Perm(len(b.Tasks)) {
		b.Tasks[i].Send(&infer.Response{Final: true})
	}
}

// change loses an instance, or restarts a lost one.
func (s *serving) change(w *worker) {
	if w.down {
		s.mu.Lock()
		w.down = false
		s.mu.Unlock()
		s.events.Available(w)
		return
	}
	s.mu.Lock()
	w.down = true
	batches := w.batches
	w.batches = nil
	for _, b := range batches {
		s.goesBack(b)
	}
	s.mu.Unlock()
	if s.pick(2) == 0 {
		s.events.Lost(w, false)
		w = nil
	}
	for i := len(batches) - 1; i >= 0; i-- {
		batches[i].Done(batches[i], backend.Report{Refused: true})
	}
	if w != nil {
		s.events.Lost(w, false)
	}
}

// checkForgotten checks, when all goroutines block, that no request waits that an idle
// instance should have.
func (s *serving) checkForgotten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead, executing, idle := 0, 0, false
	for _, w := range s.instances {
		idle = idle || !w.down && len(w.batches) == 0
		executing += min(len(w.batches), 1)
		for _, b := range w.batches[min(1, len(w.batches)):] {
			ahead += len(b.Tasks)
		}
	}
	var queued []*client
	for _, c := range s.asked {
		if c.queued && c.finals == 0 && !c.left && !s.expired(c) { // errors may be held back
			queued = append(queued, c)
		}
	}
	if n := int(s.counts.Waiting.Load()); n != len(queued)+ahead {
		s.t.Errorf("%d are pending, where %d are queued and %d ahead", n, len(queued), ahead)
	}
	if s.limiter != nil && s.limiter.Usage().Staged > 0 {
		s.waited++
		if executing == 0 || len(queued) == 0 {
			s.t.Errorf("an instance waits for its turn, where %d execute and %d requests wait", executing, len(queued))
		}
		return
	}
	if !idle || len(queued) == 0 {
		return
	}
	for _, c := range queued {
		if age := time.Since(c.since); age >= s.batching.MaxDelay {
			s.t.Errorf("request %s has waited for %v while an instance is idle", c.request.ID, age)
		}
	}
	if s.complete(queued) {
		s.t.Errorf("a complete batch waits while an instance is idle: %d requests", len(queued))
	}
}

// expired reports whether the deadline of a request has passed, if it is rejected then.
func (s *serving) expired(c *client) bool {
	p := s.batching.Policy
	timeout := p.GetDefaultTimeoutMicroseconds()
	if own := c.request.TimeoutMicros; own > 0 && p.GetAllowTimeoutOverride() {
		timeout = min(timeout, own)
	}
	return timeout > 0 && p.GetTimeoutAction() == kserve.ModelQueuePolicy_REJECT && time.Since(c.since) >= batching.Micros(timeout)
}

// complete reports whether queued requests form a batch that no further request can improve, in
// whichever order they are queued: it has the largest preferred size, or not all of them fit into
// it.
func (s *serving) complete(queued []*client) bool {
	b := s.batching
	if b.MaxSize < 2 {
		return true
	}
	size, bytes, alike := int64(0), 0, true
	for _, c := range queued {
		size += c.request.BatchSize
		bytes += len(c.request.Inputs[0].Data)
		alike = alike && b.Alike.Equal(queued[0].request, c.request)
	}
	enough := b.MaxSize
	if len(b.Preferred) > 0 {
		enough = slices.Max(b.Preferred)
	}
	limit, limited := b.Strategy.(bounded)
	return size >= enough || !alike || limited && bytes > limit.bytes && len(queued) > 1
}

// finish ends everything and checks the outcome of each request.
func (s *serving) finish() {
	for _, w := range s.instances {
		if w.down {
			s.change(w)
		}
	}
	for range 2000 {
		synctest.Wait()
		for _, w := range s.instances {
			s.end(w)
		}
		if s.d.InFlight() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for id, c := range s.asked {
		c.cancel()
		if c.finals != 1 {
			s.t.Errorf("request %s was answered %d times", id, c.finals)
		}
	}
	if err := s.d.Stop(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	if l := s.limiter; l != nil && l.Usage() != (ratelimit.Usage{}) {
		s.t.Errorf("at the end: %+v", l.Usage())
	}
	if n := s.counts.Waiting.Load(); n != 0 || s.d.InFlight() != 0 {
		s.t.Errorf("at the end: %d pending, %d in flight", n, s.d.InFlight())
	}
	if int(s.counts.Failures.Load()) != s.failed {
		s.t.Errorf("%d were counted as failed, %d got an error", s.counts.Failures.Load(), s.failed)
	}
	if !s.batching.PreserveOrder {
		return
	}
	place := map[string]int{}
	for i, id := range s.given {
		place[id] = i
	}
	last := -1
	for _, id := range s.answers {
		if at, executed := place[id]; executed {
			if at < last {
				s.t.Errorf("request %s was answered after one that was given to an instance later", id)
			}
			last = at
		}
	}
}
