package execution

import (
	"context"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Batch is one call of Execute, with the requests that remain after it. It has no pointers to the
// author's Requests, so that dropped ones are detected.
type Batch struct {
	tracker *Tracker
	batch   *backend.Batch
	begun   int64 // the instance took the batch
	started int64 // the author's Execute was called

	mu         sync.Mutex
	executing  bool  // Execute has not returned
	concluded  bool  // Done has been, or is about to be, called
	timed      timed // where times come from
	unreleased int32 // requests
	times      [4]int64
	failure    *infer.Error // of Execute
	entries    []entry
}

// timed is the source of the times of a report; a higher value takes precedence.
type timed uint8

const (
	byClock timed = iota
	byRequest
	byBatch
)

// entry is one request of a Batch. Its fields are guarded by the batch's mu unless they say
// otherwise.
type entry struct {
	batch *Batch        // not changed, nor is task
	task  *backend.Task // the scheduler's again once it has been given back by Rescheduled

	responded bool // a response has been sent that carries something
	answered  bool // the last response has been sent, or is held
	failed    bool // it was an error, or statistics say so
	counted   bool // statistics have been reported
	released  bool
	again     bool // released in order to get it once more

	// held is the last response, sent inside Execute, until that returns.
	held *infer.Response
	// sending: a goroutine passes on responses, including later additions to queue.
	sending bool
	queue   *[]*infer.Response // nil mostly

	memory []infer.Memory // of the inputs, retained
	few    [1]infer.Memory

	// Guarded by the tracker's mu; kept is changed with the batch's held, too.
	kept           bool // it is in the tracker's list
	pending        bool // it counts there as one without an answer
	previous, next *entry

	window *window // not changed; nil unless the model is decoupled
}

// single is a batch of one request.
type single struct {
	Batch
	entries [1]entry
}

// Begin starts a batch for an Execute that is about to be called, and fills in the author's
// requests, one for each task of the batch. begun is when the instance took the batch, and started
// when the author's Execute is called, in ns of CLOCK_MONOTONIC; 0 means now.
func (c *Tracker) Begin(tasks *backend.Batch, requests []Request, begun, started int64) *Batch {
	var b *Batch
	if len(tasks.Tasks) == 1 {
		one := &single{}
		b = &one.Batch
		b.entries = one.entries[:]
	} else {
		b = &Batch{entries: make([]entry, len(tasks.Tasks))}
	}
	b.tracker, b.batch, b.executing, b.unreleased = c, tasks, true, int32(len(tasks.Tasks))
	for i, task := range tasks.Tasks {
		e, r := &b.entries[i], &requests[i]
		e.batch, e.task, e.memory = b, task, e.few[:0]
		if c.Decoupled {
			e.window = &window{limits: &c.Window}
		}
		r.entry, r.request, r.task = e, task.Request, task.Context
		r.inputs = r.few[:0]
		for j := range task.Request.Inputs {
			t := &task.Request.Inputs[j]
			if t.Memory != nil {
				t.Memory.Retain()
				e.memory = append(e.memory, t.Memory)
			}
			r.inputs = append(r.inputs, Input{t, r})
		}
	}
	if started == 0 {
		started = backend.Now()
	}
	b.begun, b.started = begun, started
	if begun == 0 {
		b.begun = started
	}
	c.mu.Lock()
	c.current = b // Break may see it from here on
	c.mu.Unlock()
	return b
}

// Returned completes the requests that Execute has left open. failure is its error, or nil if it
// has taken all requests. panicked reports that the failure was a panic, after which responses are
// not a fault.
func (b *Batch) Returned(requests []Request, failure *infer.Error, panicked bool) {
	ended := backend.Now()
	c := b.tracker
	b.mu.Lock()
	if !b.executing { // it has been given up by Break
		b.mu.Unlock()
		return
	}
	b.executing = false
	if b.timed == byClock {
		b.times = [4]int64{b.begun, b.started, ended, ended}
	} else {
		b.boundTimesLocked(ended)
	}
	var taken []*entry // against the rules
	left := 0
	if failure != nil {
		b.failure = failure
		for i := range b.entries {
			e := &b.entries[i]
			if !panicked && (e.answered || e.responded || e.released) {
				taken = append(taken, e)
			}
			b.giveUpLocked(e)
			if !e.answered || e.again {
				e.again = false
				e.answered, e.failed = true, true
				e.held = infer.ErrorResponse(failure)
				e.window.end()
			}
		}
	} else {
		for i := range b.entries {
			if e := &b.entries[i]; !e.completeLocked() {
				left++
				_ = c.keepLocked(e) // the tracker ends after Execute has returned
			}
		}
	}
	conclude := b.concludesLocked()
	b.mu.Unlock()

	for _, e := range taken {
		c.fault(e.task.Request, "Execute has returned an error, though it had answered or released the request")
	}
	if left > 0 && len(requests) > 0 {
		b.watch(&requests[0])
	}
	if !c.AnswersFirst && conclude {
		b.conclude(ended)
	}
	if !conclude && c.Later != nil {
		c.Later()
	}
	for i := range b.entries {
		b.flush(&b.entries[i])
	}
	if c.AnswersFirst && conclude {
		b.conclude(ended)
	}
}

// concludesLocked reports whether Done is due. The caller then calls it.
func (b *Batch) concludesLocked() bool {
	if b.executing || b.concluded || b.tracker.Sequences && b.unreleased > 0 {
		return false
	}
	b.concluded = true
	return true
}

// conclude calls Done, at the time that the caller has just read from the clock, or 0.
func (b *Batch) conclude(at int64) {
	c := b.tracker
	b.mu.Lock()
	report := backend.Report{Start: b.times[0], ComputeStart: b.times[1], ComputeEnd: b.times[2], End: b.times[3], Executed: true, Reported: b.timed != byClock, GPU: c.GPU, Made: at}
	if b.failure != nil {
		report.Err = b.failure
	}
	for i := range b.entries {
		e := &b.entries[i]
		switch {
		case e.again:
			report.Rescheduled = append(report.Rescheduled, e.task)
		case e.failed && b.failure == nil:
			report.Failed = append(report.Failed, i)
		}
	}
	b.mu.Unlock()
	c.mu.Lock()
	if c.current == b {
		c.current = nil
	}
	c.mu.Unlock()
	c.done(b.batch, report)
}

// flush passes on the responses held until Execute returned.
func (b *Batch) flush(e *entry) {
	b.mu.Lock()
	held := e.held
	e.held = nil
	if held == nil {
		b.mu.Unlock()
		return
	}
	b.upLocked(e, held)
}

// upLocked passes a response on. If another goroutine is passing on responses, that goroutine does
// it after its own. upLocked unlocks the batch.
func (b *Batch) upLocked(e *entry, r *infer.Response) {
	if e.sending {
		if e.queue == nil {
			e.queue = new([]*infer.Response)
		}
		*e.queue = append(*e.queue, r)
		b.mu.Unlock()
		return
	}
	e.sending = true
	for {
		b.mu.Unlock()
		last := r.Final // read before the receiver has it
		b.tracker.send(e.task, r)
		if last {
			return // there is no other, and e.task may be in other hands
		}
		b.mu.Lock()
		if e.queue == nil || len(*e.queue) == 0 {
			e.sending = false
			b.mu.Unlock()
			return
		}
		r = (*e.queue)[0]
		(*e.queue)[0] = nil
		*e.queue = (*e.queue)[1:]
	}
}

func (e *entry) completeLocked() bool { return e.released && (e.answered || e.again) }

// giveUpLocked releases a request, unless it has been released.
func (b *Batch) giveUpLocked(e *entry) {
	if e.released {
		return
	}
	e.released = true
	b.unreleased--
	for i, m := range e.memory {
		m.Release()
		e.memory[i] = nil
	}
	e.memory = nil
}

// abandon ends a request that its instance will not end: it responds with an error, unless there
// was a response, and releases the request.
func (b *Batch) abandon(e *entry, when string) {
	c := b.tracker
	b.mu.Lock()
	var what string
	switch {
	case e.completeLocked():
		c.forgetLocked(e)
		b.mu.Unlock()
		return
	case e.answered:
		what = "the request had not been released " + when + "; that is done now"
	default:
		what = "the request had no final response " + when + "; it gets an error"
	}
	b.giveUpLocked(e)
	c.forgetLocked(e)
	conclude := b.concludesLocked()
	answer := !e.answered
	e.answered = true
	if answer {
		e.failed = true
		e.window.end()
	}
	request := e.task.Request
	b.mu.Unlock()
	c.fault(request, what)
	if conclude {
		b.conclude(0)
	}
	if answer {
		b.mu.Lock()
		b.upLocked(e, infer.ErrorResponse(infer.Errorf(infer.Internal, "%smodel '%s' has not answered the request", request.LogPrefix(), c.Model)))
	}
}

// watch detects when the author has dropped all requests of a batch that is not complete.
func (b *Batch) watch(first *Request) {
	WhenDropped(b.tracker.Log, first, (*Batch).dropped, b)
}

// dropped ends the remaining requests of a batch that the author has dropped.
func (b *Batch) dropped() {
	for i := range b.entries {
		e := &b.entries[i]
		b.mu.Lock()
		complete := e.completeLocked()
		b.mu.Unlock()
		if !complete {
			b.abandon(e, "and the backend keeps it no more")
		}
	}
}

// Requests returns the requests of the batch, and whether Execute is still running.
func (b *Batch) Requests() (requests []*infer.Request, executing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.entries {
		if e := &b.entries[i]; b.executing || !e.completeLocked() {
			requests = append(requests, e.task.Request)
		}
	}
	return requests, b.executing
}

// Abandoned reports whether no client waits for any request of the batch.
func (b *Batch) Abandoned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.entries {
		if e := &b.entries[i]; !e.again && e.task.Context.Err() == nil {
			return false
		}
	}
	return true
}

// Has reports whether a task belongs to the batch.
func (b *Batch) Has(task *backend.Task) bool {
	for i := range b.entries {
		if b.entries[i].task == task {
			return true
		}
	}
	return false
}

// batchKey is the key of a batch in its own context.
type batchKey struct{}

// Of returns the batch whose Execute received the context, or nil.
func Of(ctx context.Context) *Batch {
	b, _ := ctx.Value(batchKey{}).(*Batch)
	return b
}

// Context returns the context of one Execute. It ends with the instance, and contains the batch.
func (b *Batch) Context() context.Context { return (*batchContext)(b) }

type batchContext Batch

// Deadline implements context.Context.
func (b *batchContext) Deadline() (time.Time, bool) { return b.tracker.Life.Deadline() }

// Done implements context.Context.
func (b *batchContext) Done() <-chan struct{} { return b.tracker.Life.Done() }

// Err implements context.Context.
func (b *batchContext) Err() error { return b.tracker.Life.Err() }

// Value implements context.Context.
func (b *batchContext) Value(key any) any {
	if key == (batchKey{}) {
		return (*Batch)(b)
	}
	return b.tracker.Life.Value(key)
}
