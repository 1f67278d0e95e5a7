package sequence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/sequence"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// fixture is a sequence batcher whose instances follow a script. Its steps:
//
//	up i            the instance i becomes available
//	lose i, restart i   its process dies, for good or to come back
//	staged i        like restart, but it had not begun its batch
//	send r id flags [timeout]   sends request r of a sequence: flags are "S", "E", "SE", "-"
//	end i           the instance answers its batch
//	fail i          it fails
//	again i         it reschedules its whole batch
//	return i        it returns from execute, responses come later: answer r
//	cancel r        the client of r disconnects
//	wait 20ms       time passes
//	retire i, forget i, stop
//
// Its expectations:
//
//	has i a . b     instance i executes requests a and b, with padding between
//	got r           r was answered; got r text: with this error
//	waits r         r has no response yet
//	refused r text  r was rejected with this error
//	drained i       instance i is drained
//	live n          n sequences are live
type fixture struct {
	*sequence.Batcher
	config    sequence.Config
	stopped   bool
	t         testing.TB
	counts    batchCounter
	log       strings.Builder
	view      sync.Mutex // protects the instances' batches and the clients' responses, which timers change too
	instances map[string]*fakeInstance
	clients   map[string]*client
	drained   map[string]bool
}

type batchCounter struct {
	tally
	sizes []int64
}

func (c *batchCounter) Executed(e *scheduler.Execution) {
	c.tally.Executed(e)
	c.sizes = append(c.sizes, int64(len(e.Requests))+e.Padding)
}

type client struct {
	own     *infer.Request
	seen    *infer.Request // as the last instance got it
	refused error
	final   *infer.Response
	cancel  context.CancelFunc
	task    *backend.Task
}

// respond makes the model send a response to the request.
func (p *client) respond(r *infer.Response) { p.task.Send(r) }

// fakeInstance is an instance that executes a batch until the script ends it.
type fakeInstance struct {
	name    string
	fixture *fixture
	batch   *backend.Batch
	// more is set if it got a second batch meanwhile, which is a bug.
	more bool
	dead bool
}

func (i *fakeInstance) Name() string                     { return i.name }
func (i *fakeInstance) Ready(context.Context) error      { return nil }
func (*fakeInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (i *fakeInstance) Execute(b *backend.Batch) {
	if i.dead {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	i.fixture.view.Lock()
	defer i.fixture.view.Unlock()
	i.more = i.more || i.batch != nil
	i.batch = b
	for _, task := range b.Tasks {
		if p := i.fixture.clients[task.Request.ID]; p != nil {
			p.seen, p.task = task.Request, task
		}
	}
}

// take removes and returns the batch of the instance.
func (i *fakeInstance) take() *backend.Batch {
	i.fixture.view.Lock()
	defer i.fixture.view.Unlock()
	b := i.batch
	i.batch = nil
	return b
}

func newFixture(t testing.TB, config sequence.Config) *fixture {
	c := &fixture{t: t, instances: map[string]*fakeInstance{}, clients: map[string]*client{}, drained: map[string]bool{}}
	config.Model, config.Observer, config.Log = "m", &c.counts, zerolog.New(&c.log)
	config.Graph = waitgraph.New(config.Log, waitgraph.Patience)
	if config.Batching == nil {
		config.Batching = &kserve.ModelSequenceBatching{}
	}
	c.config = config
	c.Batcher = sequence.New(config)
	return c
}

func (c *fixture) instance(name string) *fakeInstance {
	if c.instances[name] == nil {
		c.instances[name] = &fakeInstance{name: name, fixture: c}
	}
	return c.instances[name]
}

var sequenceFlags = map[string]uint32{"S": infer.SequenceStart, "E": infer.SequenceEnd, "SE": infer.SequenceStart | infer.SequenceEnd, "-": 0}

func correlation(text string) infer.CorrelationID {
	var n uint64
	if _, err := fmt.Sscanf(text, "%d", &n); err == nil {
		return infer.CorrelationID{Number: n}
	}
	if text == "none" {
		return infer.CorrelationID{}
	}
	return infer.CorrelationID{Text: text}
}

func (c *fixture) send(req *infer.Request) *client {
	ctx, cancel := context.WithCancel(context.Background())
	p := &client{own: req, cancel: cancel}
	c.clients[req.ID] = p
	p.refused = c.Submit(ctx, req, func(r *infer.Response) {
		c.view.Lock()
		defer c.view.Unlock()
		if p.final != nil {
			c.t.Errorf("request %s was answered after its last response", req.ID)
		}
		if r.Final {
			p.final = r
		}
	})
	return p
}

// finish ends the batch of an instance.
func (c *fixture) finish(i *fakeInstance, report backend.Report, answer func() *infer.Response) {
	c.t.Helper()
	b := i.take()
	if b == nil {
		c.t.Fatalf("instance %s executes nothing", i.name)
	}
	b.Done(b, report)
	for _, task := range b.Tasks {
		if answer != nil {
			task.Send(answer())
		}
	}
}

func (c *fixture) run(script ...string) {
	c.t.Helper()
	for _, line := range script {
		for _, step := range strings.Split(line, "; ") {
			c.step(strings.TrimSpace(step))
			synctest.Wait()
			if c.t.Failed() {
				c.t.Fatalf("at step %q of %q", step, line)
			}
		}
	}
}

func (c *fixture) step(line string) {
	c.t.Helper()
	f := append(strings.Fields(line), "", "", "", "")
	name := f[1]
	ok := func() *infer.Response { return &infer.Response{Final: true} }
	switch f[0] {
	case "up":
		i := c.instance(name)
		i.dead = false
		c.Available(i)
	case "lose", "restart":
		i := c.instance(name)
		i.dead = true
		if i.has() != nil {
			lost := errors.New("lost")
			c.finish(i, backend.Report{Err: lost, Executed: true}, func() *infer.Response { return infer.ErrorResponse(lost) })
		}
		c.Lost(i, f[0] == "lose")
	case "staged": // like restart, but its batch was still waiting for its turn
		i := c.instance(name)
		i.dead = true
		b := i.take()
		c.Lost(i, false)
		b.Done(b, backend.Report{Refused: true})
	case "send":
		req := &infer.Request{ID: name, Correlation: correlation(f[2]), Flags: sequenceFlags[f[3]], BatchSize: int64(min(c.config.MaxBatch, 1))}
		if f[4] != "" {
			d, err := time.ParseDuration(f[4])
			if err != nil {
				c.t.Fatal(err)
			}
			req.TimeoutMicros = uint64(d / time.Microsecond)
		}
		c.send(req)
	case "end":
		c.finish(c.instance(name), backend.Report{Executed: true}, ok)
	case "fail":
		c.finish(c.instance(name), backend.Report{Executed: true, Err: errors.New("failed")}, func() *infer.Response { return infer.ErrorResponse(errors.New("failed")) })
	case "return":
		c.finish(c.instance(name), backend.Report{Executed: true}, nil)
	case "answer":
		c.clients[name].task.Send(ok())
	case "again":
		i := c.instance(name)
		c.finish(i, backend.Report{Executed: true, Rescheduled: i.has().Tasks}, nil)
	case "cancel":
		c.clients[name].cancel()
	case "wait":
		d, err := time.ParseDuration(name)
		if err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(d)
	case "retire":
		c.Retire(c.instance(name), func() { c.drained[name] = true })
	case "forget":
		c.Forget(c.instance(name))
	case "stop":
		c.stopped = true
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Stop(ctx)
	default:
		c.see(line, f)
	}
}

// see checks an expectation.
func (c *fixture) see(line string, f []string) {
	c.t.Helper()
	name := f[1]
	live := len(c.Known())
	c.view.Lock()
	defer c.view.Unlock()
	switch f[0] {
	case "has":
		want, got := strings.Fields(line)[2:], []string{}
		i := c.instance(name)
		if i.batch != nil {
			for _, task := range i.batch.Tasks {
				if task.Request.Padding {
					got = append(got, ".")
				} else {
					got = append(got, task.Request.ID)
				}
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || i.more {
			c.t.Errorf("instance %s executes %q (two batches at once: %v), want %q", name, got, i.more, want)
		}
	case "got":
		_, want, _ := strings.Cut(line, " "+name)
		p := c.clients[name]
		if p.final == nil {
			c.t.Errorf("request %s has no answer (refused: %v)", name, p.refused)
			return
		}
		got := ""
		if p.final.Err != nil {
			got = " " + strings.TrimSpace(p.final.Err.Status())
		}
		if got != want {
			c.t.Errorf("request %s was answered with error %q, want %q", name, got, want)
		}
	case "waits":
		if p := c.clients[name]; p.final != nil || p.refused != nil {
			c.t.Errorf("request %s does not wait: %+v, %v", name, p.final, p.refused)
		}
	case "refused":
		_, want, _ := strings.Cut(line, " "+name+" ")
		if p := c.clients[name]; p.refused == nil || infer.AsError(p.refused).Status() != want {
			c.t.Errorf("request %s was refused with %v, want %s", name, p.refused, want)
		}
	case "drained":
		if !c.drained[name] {
			c.t.Errorf("instance %s has something left", name)
		}
	case "live":
		if got := fmt.Sprint(live); got != name {
			c.t.Errorf("%s sequences live, want %s", got, name)
		}
	default:
		c.t.Fatalf("unknown step %q", line)
	}
}

// leave ends everything that executes or waits, and checks that nothing is left.
func (c *fixture) leave() {
	c.t.Helper()
	for moved := true; moved; {
		moved = false
		for _, i := range c.instances {
			if i.has() != nil {
				c.finish(i, backend.Report{Executed: true}, func() *infer.Response { return &infer.Response{Final: true} })
				moved = true
			}
		}
		if !moved && c.counts.Waiting.Load() > 0 { // for a delay, or for the slot of an idle sequence
			time.Sleep(c.patience())
			synctest.Wait()
			for _, i := range c.instances {
				moved = moved || i.has() != nil
			}
		}
	}
	c.view.Lock()
	defer c.view.Unlock()
	for id, p := range c.clients {
		if p.final == nil && p.refused == nil {
			c.t.Errorf("request %s was never answered", id)
		}
		p.cancel()
	}
	if c.InFlight() != 0 || c.counts.Waiting.Load() != 0 {
		c.t.Errorf("at the end: %d in flight, %d pending", c.InFlight(), c.counts.Waiting.Load())
	}
	if c.stopped {
		return
	}
	// All sequences idle out.
	time.Sleep(2 * c.patience())
	synctest.Wait()
	if known, remains := c.Known(), c.Remains(); len(known)+len(remains) != 0 {
		c.t.Errorf("at the end: sequences %v, %v", known, remains)
	}
	if err := c.Stop(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// patience returns how long a request may wait for a delay, or for the slot of an idle sequence.
func (c *fixture) patience() time.Duration {
	b := c.config.Batching
	idle := batching.Micros(b.GetMaxSequenceIdleMicroseconds())
	if idle == 0 {
		idle = sequence.DefaultIdle
	}
	return max(idle, batching.Micros(b.GetDirect().GetMaxQueueDelayMicroseconds()))
}

// has returns the batch of the instance.
func (i *fakeInstance) has() *backend.Batch {
	i.fixture.view.Lock()
	defer i.fixture.view.Unlock()
	return i.batch
}
