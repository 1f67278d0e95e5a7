package scheduler

import (
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/handover"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// dropped is a request that was taken from its line for a reason.
type dropped struct {
	request *request
	reason  Reason
}

// dropLocked takes a request from its line, which the caller answers after unlocking.
func (d *Batcher) dropLocked(r *request, reason Reason) {
	d.leaveLineLocked(r)
	d.dropped = append(d.dropped, dropped{r, reason})
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

// lineUpLocked has a request wait that has just come, and reports whether there
// may be something to dispatch.
func (d *Batcher) lineUpLocked(r *request) (stirs bool) {
	d.joinsLocked(r.line)
	d.waiting.pushBack(r)
	d.wakeLocked(d.waiting.deadlines.next())
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

// putBackLocked has a request wait that had been given to an instance.
func (d *Batcher) putBackLocked(r *request) {
	d.joinsLocked(r.line - 1) // before its line, after the one before
	d.waiting.pushFront(r)
	d.wakeLocked(d.waiting.deadlines.next())
}

// joinsLocked forgets what was picked, if a request that joins the end of a line comes before
// some of it.
func (d *Batcher) joinsLocked(line int) {
	if n := len(d.forming.picked); n > 0 && line < d.forming.picked[n-1].line {
		d.forming.reset()
	}
}

// leaveLineLocked takes a request from its line without executing it.
func (d *Batcher) leaveLineLocked(r *request) {
	if r.picked {
		d.forming.reset()
	}
	d.waiting.remove(r)
}

// now is the time, 0 where nothing depends on it.
func (d *Batcher) now() int64 {
	if d.rules.delay == 0 && d.prefetches {
		return 0
	}
	return backend.Now()
}

// wakeLocked has dispatch called at a time; 0: never.
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

// dispatch hands out batches, as long as an instance can take them,
// and answers requests that wait no longer. If none waits and an instance is idle, it
// asks for what others have ahead.
func (d *Batcher) dispatch() {
	for {
		m := d.next()
		for _, o := range m.out {
			o.answer()
		}
		m.then()
		switch b := m.batch; {
		case b != nil:
			on := b.on // a batch that is refused may be given to another before Give returns
			handover.Give(d.config.Log, on.Instance(), &b.Batch)
			d.cancelGone(b.requests)
			if m.ahead {
				d.handed(on, b)
			}
		case m.ask != nil:
			m.ask.Apply((*applicant)(d), m.bls)
		case m.stuck != nil:
			m.stuck.Withdraw() // what comes back goes through again
		default:
			return
		}
	}
}

// move is what dispatch is to do.
type move struct {
	batch *batch // is handed over
	ahead bool
	ask   *ratelimit.Instance // is to ask for its turn
	bls   []*infer.Request    // that wait, for ask
	stuck backend.Pipeliner   // is asked for what it has ahead
	out   []dropped           // are answered
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

// toAsk is returned by nextLocked if there would be a batch for an instance that
// takes turns.
var toAsk = &batch{}

// nextLocked returns the batch that is to be executed next, with its instance,
// nil if there is none now; then the timer is set for when there may be.
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

// leaveLinesLocked takes what was picked from where it waits.
func (d *Batcher) leaveLinesLocked(b *batch) {
	d.forming.reset()
	for _, r := range b.requests {
		d.waiting.remove(r)
	}
}

// readyLocked returns how many of those picked are to be executed now, if there is
// an instance for them: an idle one, or an instance that takes a complete batch ahead. If
// n is 0, the timer is set for when there may be some.
func (d *Batcher) readyLocked(idle bool) (n int, complete bool) {
	now := d.now()
	for next := d.waiting.deadlines.next(); next != 0 && next <= now; next = d.waiting.deadlines.next() {
		d.dropLocked(d.waiting.deadlines[0], Rejected)
	}
	d.wakeLocked(d.waiting.deadlines.next())
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
