package scheduler

import (
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// dropped is a request that has left its line without an execution.
type dropped struct {
	request *request
	reason  Reason
}

// dropLocked removes a request from its line; the caller answers it after unlocking.
func (d *Batcher) dropLocked(r *request, reason Reason) {
	d.leaveLineLocked(r)
	d.dropped = append(d.dropped, dropped{r, reason}) // bound: requests, which are charged
}

func (o dropped) answer() {
	d := o.request.scheduler
	d.config.Observer.Pending(-1)
	if o.reason == Rejected {
		d.fail(o.request, Rejected, infer.Errorf(infer.Unavailable, "Request timeout expired"))
		return
	}
	d.fail(o.request, Canceled, canceled())
}

// lineUpLocked queues a new request and reports whether dispatch may find a batch.
func (d *Batcher) lineUpLocked(r *request) (stirs bool) {
	d.joinsLocked(r.line)
	d.waiting.pushBack(r)
	d.wakeLocked(d.waiting.nextDeadline())
	if d.hold > 0 {
		return d.waiting.length >= d.hold
	}
	if len(d.idle) > 0 {
		return true
	}
	if d.rules.one || !d.prefetches || d.aheads == d.instances.CountAvailableLocked() || d.forming.complete(&d.rules) {
		return false
	}
	d.lookLocked(d.now())
	return d.forming.complete(&d.rules) || len(d.dropped) > 0
}

// putBackLocked queues a request in front that an instance had.
func (d *Batcher) putBackLocked(r *request) {
	d.joinsLocked(r.line - 1) // in front of its line
	d.waiting.pushFront(r)
	d.wakeLocked(d.waiting.nextDeadline())
}

// joinsLocked discards the batch being formed if a request joins the end of a line before its last
// picked request.
func (d *Batcher) joinsLocked(line int) {
	if n := len(d.forming.picked); n > 0 && line < d.forming.picked[n-1].line {
		d.forming.reset()
	}
}

// leaveLineLocked removes a request from its line without executing it.
func (d *Batcher) leaveLineLocked(r *request) {
	if r.picked {
		d.forming.reset()
	}
	d.waiting.remove(r)
}

// now returns the time, or 0 if no decision depends on it.
func (d *Batcher) now() int64 {
	if d.rules.delay == 0 && d.prefetches {
		return 0
	}
	return backend.Now()
}

// wakeLocked schedules a dispatch; 0 means never.
func (d *Batcher) wakeLocked(at int64) {
	if at == 0 || d.wakeAt != 0 && d.wakeAt <= at {
		return
	}
	d.wakeAt = at
	wait := time.Duration(max(at-backend.Now(), 0))
	if d.timer == nil {
		d.timer = panics.AfterFunc(d.config.Log, panics.Scheduler, wait, d.awake, nil)
		return
	}
	d.timer.Reset(wait)
}

func (d *Batcher) awake() {
	d.mu.Lock()
	d.wakeAt = 0
	d.mu.Unlock()
	d.dispatch()
}

// dispatch gives batches to instances while they can take them, and answers dropped requests. If no
// request waits and an instance is idle, it withdraws batches that other instances have ahead.
func (d *Batcher) dispatch() {
	for {
		m := d.next()
		for _, o := range m.out {
			o.answer()
		}
		m.then()
		switch b := m.batch; {
		case b != nil:
			on := b.on // a refused batch may belong to another member before Give returns
			handover.Give(d.config.Log, on.Instance(), &b.Batch)
			d.cancelGone(b.requests)
			if m.ahead {
				d.handed(on, b)
			}
		case m.ask != nil:
			m.ask.Apply((*applicant)(d), m.bls)
		case m.stuck != nil:
			m.stuck.Withdraw() // its requests pass through again
		default:
			return
		}
	}
}

// move is one action of dispatch.
type move struct {
	batch *batch // to be executed
	ahead bool
	ask   backend.TurnTaker // asks for its turn
	bls   []*infer.Request  // queued BLS requests, for ask
	stuck backend.Pipeliner // its batch ahead is withdrawn
	out   []dropped         // dropped requests
	then  func()
}

func (d *Batcher) next() (m move) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.then = nothing
	m.batch, m.ahead = d.nextLocked()
	m.out, d.dropped = d.dropped, nil
	switch m.batch {
	case nil:
		m.stuck = d.stuckLocked()
		m.then = d.recallIdleLocked()
	case toAsk:
		m.batch = nil
		m.ask, m.bls = d.askLocked()
	}
	return m
}

// toAsk is the result of nextLocked if a batch is due for an instance that takes turns.
var toAsk = &batch{}

// nextLocked returns the batch to execute next, assigned to an instance, or nil. Without a batch it
// sets the timer for the time at which one may be due.
func (d *Batcher) nextLocked() (b *batch, ahead bool) {
	if d.waiting.length == 0 {
		return nil, false
	}
	n, complete := d.readyLocked(len(d.idle) > 0 && d.asked == nil)
	switch {
	case n == 0:
		return nil, false
	case d.takesTurns:
		return toAsk, false
	}
	b = newBatch(d.forming.picked[:n])
	on, ahead := d.takeLocked(b, complete)
	if on == nil {
		return nil, false
	}
	d.leaveLinesLocked(b)
	if !ahead {
		d.config.Observer.Pending(-len(b.requests))
	}
	return b, ahead
}

// leaveLinesLocked removes the requests of a new batch from their lines.
func (d *Batcher) leaveLinesLocked(b *batch) {
	d.forming.reset()
	for _, r := range b.requests {
		d.waiting.remove(r)
	}
}

// readyLocked returns how many of the picked requests form a batch now, if an instance can take it:
// an idle one, or one that takes a complete batch ahead. With n 0 the timer is set.
func (d *Batcher) readyLocked(idle bool) (n int, complete bool) {
	now := d.now()
	for r := d.waiting.deadlines.First(); r != nil && r.deadline <= now; r = d.waiting.deadlines.First() {
		d.dropLocked(r, Rejected)
	}
	d.wakeLocked(d.waiting.nextDeadline())
	if d.waiting.length < d.hold {
		return 0, false
	}
	d.hold = 0
	if !idle && (!d.prefetches || d.aheads == d.instances.CountAvailableLocked()) {
		return 0, false
	}
	d.lookLocked(now)
	n, until := d.dueLocked(now)
	complete = d.forming.complete(&d.rules)
	if !idle && !complete {
		return 0, false
	}
	if n == 0 {
		d.wakeLocked(until)
	}
	return n, complete
}
