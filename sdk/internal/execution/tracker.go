package execution

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Config configures a Tracker.
type Config struct {
	Backend, Model, Instance string          // for texts
	Life                     context.Context // the life of the instance; parent of Execute's context
	Decoupled                bool            // a request may have any number of responses
	// Sequences delays Done until all requests are released, because the next request of a sequence
	// may follow.
	Sequences bool
	Iterative bool // requests may be rescheduled
	// Outputs are the allowed names of outputs.
	Outputs map[string]bool
	// Allocate lends memory for outputs of more than SmallOutput bytes; nil: the Go heap.
	Allocate func(bytes int64) ([]byte, infer.Memory, error)
	// AnswersFirst passes on the responses of Execute before Done instead of after it.
	AnswersFirst bool
	// Later, if not nil, is called when Execute has returned but Done is delayed because requests have
	// not been released. The responses of Execute follow at once.
	Later func()
	// Trace returns the trace.Trace.Text of a request; nil means that the request has its trace
	// itself.
	Trace func(*infer.Request) string
	// Activity records an author's report about a traced request, at ns of CLOCK_MONOTONIC; nil means
	// that the request has its trace itself.
	Activity func(r *infer.Request, name string, at int64)
	Window   WindowLimits
	GPU      int32 // backend.Report.GPU
	// Fault receives a sentence for each violation of the backend.
	Fault func(text string)
	Log   zerolog.Logger // of panics in the functions above
}

// SmallOutput is the largest size of an output on the Go heap.
const SmallOutput = 4 << 10

// Tracker tracks the requests of an instance: those of the batch that it executes, and those that
// it has kept after that.
type Tracker struct {
	Config

	// mu guards the fields below. It is taken inside the lock of a Batch, briefly.
	mu      sync.Mutex
	current *Batch        // the batch of the latest Execute, until its Done
	open    *entry        // the first of a list of kept, incomplete requests
	pending int           // kept requests without an answer
	settled chan struct{} // closed when pending is 0; nil if nobody waits
	ended   bool
}

// New returns the tracker of an instance without requests.
func New(config Config) *Tracker {
	config.Window = config.Window.withDefaults()
	return &Tracker{Config: config}
}

// fault reports a violation in a request. No lock is held.
func (c *Tracker) fault(request *infer.Request, what string) {
	c.Fault("backend '" + c.Backend + "', model '" + c.Model + "', instance '" + c.Instance + "': " + request.LogPrefix() + what)
}

// keepLocked adds an entry of a locked batch to the list, or returns false if the tracker has
// ended.
func (c *Tracker) keepLocked(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	e.kept = true
	if !e.answered && !e.again {
		e.pending = true
		c.pending++
	}
	e.next = c.open
	if e.next != nil {
		e.next.previous = e
	}
	c.open = e
	return true
}

// forgetLocked removes an entry of a locked batch from the list.
func (c *Tracker) forgetLocked(e *entry) {
	if !e.kept {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked(e)
	e.kept = false
	if e.previous != nil {
		e.previous.next = e.next
	} else {
		c.open = e.next
	}
	if e.next != nil {
		e.next.previous = e.previous
	}
	e.previous, e.next = nil, nil
}

// answeredLocked records the response to an entry of a locked batch.
func (c *Tracker) answeredLocked(e *entry) {
	if e.kept {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.settleLocked(e)
	}
}

func (c *Tracker) settleLocked(e *entry) {
	if !e.pending {
		return
	}
	e.pending = false
	if c.pending--; c.pending == 0 && c.settled != nil {
		close(c.settled)
		c.settled = nil
	}
}

// Settle waits until all kept requests have responses, or done is closed. No Execute is running.
func (c *Tracker) Settle(done <-chan struct{}) {
	c.mu.Lock()
	if c.pending == 0 {
		c.mu.Unlock()
		return
	}
	if c.settled == nil {
		c.settled = make(chan struct{})
	}
	settled := c.settled
	c.mu.Unlock()
	select {
	case <-settled:
	case <-done:
	}
}

// Current returns the batch being executed, or nil.
func (c *Tracker) Current() *Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Open returns the number of kept requests.
func (c *Tracker) Open() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.open; e != nil; e = e.next {
		n++
	}
	return n
}

// End ends the remaining requests of the instance with an error and releases them. No Execute is
// running.
func (c *Tracker) End() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	for {
		c.mu.Lock()
		e := c.open
		c.mu.Unlock()
		if e == nil {
			return
		}
		e.batch.abandon(e, "when its instance was closed")
	}
}

// Break ends the requests of an Execute that does not return with an error.
func (c *Tracker) Break(failure *infer.Error) {
	if b := c.Current(); b != nil {
		b.Returned(nil, failure, true)
	}
}

// send passes on a response and recovers panics.
func (c *Tracker) send(task *backend.Task, r *infer.Response) {
	var err error
	defer panics.Recover(&c.Log, panics.Request, &err)
	task.Send(r)
}

// done calls a batch's Done and recovers panics.
func (c *Tracker) done(b *backend.Batch, report backend.Report) {
	var err error
	defer panics.Recover(&c.Log, panics.Request, &err)
	b.Done(b, report)
}
