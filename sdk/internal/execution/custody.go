package execution

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Config says whose requests a Custody keeps, and by which rules.
type Config struct {
	Backend, Model, Instance string          // for texts
	Life                     context.Context // ends with the instance's; that of Execute is made of it
	Decoupled                bool            // a request may have any number of responses
	// Sequences: a request of the same sequence may follow as soon as Done has been called, so
	// Done waits for the release of all requests.
	Sequences bool
	Iterative bool // requests may be released in order to get them again
	// Outputs are the names that responses may have.
	Outputs map[string]bool
	// Allocate lends memory for outputs of more than SmallOutput bytes; nil: the Go heap.
	Allocate func(bytes int64) ([]byte, infer.Memory, error)
	// AnswersFirst: what Execute has answered goes up before Done is called, and not after it.
	AnswersFirst bool
	// Later is told that Execute has returned and Done comes later, as requests have not been released; what was answered goes up
	// right behind it. nil: nobody wants to know.
	Later func()
	// Trace returns what trace.Trace.Text gives of a request; nil: the request has its trace itself.
	Trace func(*infer.Request) string
	// Activity takes what the author reports of a request that is traced, at ns of CLOCK_MONOTONIC; nil: the request has its trace itself.
	Activity func(r *infer.Request, name string, at int64)
	Window   Window
	GPU      int32 // backend.Report.GPU
	// Fault is told what the backend did wrong, a sentence each time.
	Fault func(text string)
	Log   zerolog.Logger // of panics in what is called above
}

// SmallOutput is up to how many bytes an output lies on the Go heap.
const SmallOutput = 4 << 10

// Custody knows which requests an instance has: those of the batch that it executes, and
// those that it has kept after that.
type Custody struct {
	Config

	// mu guards what follows. It is taken inside the lock of a Batch, for a few instructions.
	mu      sync.Mutex
	current *Batch        // whose Done has not been called, of the latest Execute
	open    *entry        // the first of a list of those that are kept: not complete
	pending int           // of these, those without an answer
	settled chan struct{} // closed when pending is 0; nil while nobody waits for that
	ended   bool
}

// New makes the custody of an instance that has nothing yet.
func New(config Config) *Custody {
	config.Window = config.Window.withDefaults()
	return &Custody{Config: config}
}

// fault logs what the backend did wrong with a request. No lock is held.
func (c *Custody) fault(request *infer.Request, what string) {
	c.Fault("backend '" + c.Backend + "', model '" + c.Model + "', instance '" + c.Instance + "': " + request.LogPrefix() + what)
}

// keepLocked adds an entry whose batch is locked to the list. False: the custody has ended.
func (c *Custody) keepLocked(e *entry) bool {
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

// forgetLocked takes an entry out of the list whose batch is locked.
func (c *Custody) forgetLocked(e *entry) {
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

// answeredLocked notes that an entry waits for no answer any more, whose batch is locked.
func (c *Custody) answeredLocked(e *entry) {
	if e.kept {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.settleLocked(e)
	}
}

func (c *Custody) settleLocked(e *entry) {
	if !e.pending {
		return
	}
	e.pending = false
	if c.pending--; c.pending == 0 && c.settled != nil {
		close(c.settled)
		c.settled = nil
	}
}

// Settle waits until all requests have been answered that the instance has kept, or done is closed. No Execute is under way.
func (c *Custody) Settle(done <-chan struct{}) {
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

// Current returns the batch that is executed, nil if none is.
func (c *Custody) Current() *Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Open counts the requests that the instance has kept.
func (c *Custody) Open() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.open; e != nil; e = e.next {
		n++
	}
	return n
}

// End ends the custody: requests that the instance still has are answered with an error, and
// released. No Execute is under way.
func (c *Custody) End() {
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

// Break settles an Execute that does not return: its requests are answered with an error.
func (c *Custody) Break(failure *infer.Error) {
	if b := c.Current(); b != nil {
		b.Returned(nil, failure, true)
	}
}

// send hands a response up. A panic ends here.
func (c *Custody) send(task *backend.Task, r *infer.Response) {
	var err error
	defer panics.Recover(&c.Log, panics.Request, &err)
	task.Send(r)
}

// done calls a batch's Done. A panic ends here.
func (c *Custody) done(b *backend.Batch, report backend.Report) {
	var err error
	defer panics.Recover(&c.Log, panics.Request, &err)
	b.Done(b, report)
}
