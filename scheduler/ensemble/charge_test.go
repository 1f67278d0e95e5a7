package ensemble

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/scheduler"
)

// largeChain returns an ensemble of that many steps, each of which reads the output of the one
// before.
func largeChain(steps int) Config {
	list := []string{"m(IN=A)->OUT=T0"}
	for n := 1; n < steps-1; n++ {
		list = append(list, fmt.Sprintf("m(IN=T%d)->OUT=T%d", n-1, n))
	}
	return ParseEnsemble("A", "B", append(list, fmt.Sprintf("m(IN=T%d)->OUT=B", steps-2))...)
}

// TestRequestsAreCharged checks that a request is charged by the size of the ensemble while it is
// in flight, and refused without memory.
func TestRequestsAreCharged(t *testing.T) {
	for _, c := range []struct {
		steps, inFlight int
		outputs         []string
		least, most     int64 // of each request
	}{
		{3, 2, nil, 3 << 10, 16 << 10},
		{3, 2, []string{"B"}, 3 << 10, 16 << 10},
		{1000, 2, nil, 1000 << 10, 2000 << 10},
		{1000, 2, []string{"B"}, 1000 << 10, 2000 << 10},
	} {
		k := newFakeComposer(t)
		config := largeChain(c.steps)
		account := budget.New(budget.Config{Limit: 64 << 20})
		config.Composer, config.Observer, config.Memory = k, &CountingObserver{}, account
		e := New(config)
		for range c.inFlight {
			k.ask(t.Context(), e, c.outputs, "A=1")
		}
		if got := account.Used(budget.Bodies) / int64(c.inFlight); got < c.least || got > c.most {
			t.Errorf("%d steps: %d bytes are charged for a request, want %d to %d", c.steps, got, c.least, c.most)
		}
		rest := account.Most(budget.Bodies) - account.Used(budget.Bodies)
		account.Must(budget.Bodies, rest)
		var refused *infer.Error
		if err := e.Submit(t.Context(), &infer.Request{Outputs: c.outputs}, nil); !errors.As(err, &refused) || refused.Code != infer.Unavailable || !refused.OutOfMemory {
			t.Fatalf("%d steps: got error %v, want the account's", c.steps, err)
		}
		account.Give(budget.Bodies, rest)
		k.answer("m", "OUT=2.")
		k.answer("m", "!bad.")
		k.answer("m", "!bad.")
		k.settled(e)
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Submit(t.Context(), &infer.Request{}, nil); err == nil {
			t.Error("a stopped ensemble accepts requests")
		}
		k.settled(e)
	}
}

// TestLaterIterationsAreCharged checks that each response of a decoupled step is charged for the
// values and requests of a large ensemble that follow from it, and that the request fails without
// memory.
func TestLaterIterationsAreCharged(t *testing.T) {
	k := newFakeComposer(t)
	list := []string{"r*(IN=A)->OUT=X,OUT1=Y"}
	var inputs []string
	for n := range 1000 {
		list = append(list, fmt.Sprintf("n(IN=X)->OUT=T%d", n))
		inputs = append(inputs, fmt.Sprintf("IN%d=T%d", n, n))
	}
	inputs = append(inputs, "IN=Y")
	config := ParseEnsemble("A", "B", append(list, "o("+strings.Join(inputs, ",")+")->OUT=B")...)
	account := budget.New(budget.Config{Limit: 64 << 20})
	config.Composer, config.Observer, config.Memory = k, &CountingObserver{}, account
	e := New(config)
	for _, outputs := range []string{"OUT=1,OUT1=1", "OUT=1", "OUT1=1"} {
		k.ask(t.Context(), e, nil, "A=1")
		before := account.Total()
		k.answer("r", outputs) // as part of the flow
		if got := account.Total(); got != before {
			t.Errorf("%s: %d bytes are charged, want %d", outputs, got, before)
		}
		k.answer("r", outputs)
		// 1000 requests and 1003 values
		if got, least, most := account.Total()-before, int64(1500<<10), int64(2500<<10); got < least || got > most {
			t.Errorf("%s: %d bytes are charged for the second response, want %d to %d", outputs, got, least, most)
		}
		for range 2 * 1000 {
			k.answer("n", "OUT=2.")
		}
		if got, most := account.Total()-before, int64(200<<10); got <= 0 || got > most { // one request
			t.Errorf("%s: %d bytes are charged for the last step, want at most %d", outputs, got, most)
		}
		k.answer("o", "OUT=3.")
		k.answer("o", "OUT=3.")
		if got := account.Total(); got != before {
			t.Errorf("%s: %d bytes are charged, want %d", outputs, got, before)
		}
		k.answer("r", ".")
		if got, want := k.said(), "B=3 B=3 ."; got != want {
			t.Errorf("%s: got %q, want %q", outputs, got, want)
		}
		k.settled(e)
	}
	for _, room := range []int{0, 2, 5, 9, 13, 15} { // in KiB times 100: it ends at different points
		k.ask(t.Context(), e, nil, "A=1")
		rest := account.Most(budget.Bodies) - account.Used(budget.Bodies) - int64(room)*100<<10
		account.Must(budget.Bodies, rest)
		k.answer("r", "OUT=1,OUT1=1")
		k.answer("r", "OUT=1,OUT1=1")
		account.Give(budget.Bodies, rest)
		k.answer("r", "OUT=1,OUT1=1.")
		k.mu.Lock()
		left := len(k.calls)
		k.mu.Unlock()
		for range left {
			k.answer("n", "OUT=2.")
		}
		if got, want := k.said(), "!Unavailable: in ensemble 'e', request needs "; !strings.HasPrefix(got, want) {
			t.Errorf("with %d KiB of room: got %q, want %q", room*100, got, want)
		}
		if !k.raw[len(k.raw)-1].Err.OutOfMemory {
			t.Errorf("with %d KiB of room: the error does not say that there was none", room*100)
		}
		k.settled(e)
	}
}

// TestResponsesThatWaitAreCharged checks that responses of a large ensemble are charged until the
// client has them.
func TestResponsesThatWaitAreCharged(t *testing.T) {
	k := newFakeComposer(t)
	var outputs, links []string
	for n := range 500 {
		outputs = append(outputs, fmt.Sprint("B", n))
		links = append(links, fmt.Sprintf("OUT%d=B%d", n, n))
	}
	config := ParseEnsemble("A", strings.Join(outputs, " "), "r*(IN=A)->"+strings.Join(links, ","))
	account := budget.New(budget.Config{Limit: 64 << 20})
	config.Composer, config.Observer, config.Memory = k, &CountingObserver{}, account
	e := New(config)
	var call *stepCall
	reads, reading := 0, int64(0)
	err := e.Submit(t.Context(), &infer.Request{}, func(r *infer.Response) {
		if reads++; reads == 1 { // the model goes on while the client reads
			before := account.Total()
			for range 10 {
				call.send(&infer.Response{})
			}
			reading = account.Total() - before
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call = k.take("r")
	call.send(&infer.Response{})
	if least := int64(10 * 500 * 80); reading < least || reading > 2*least {
		t.Errorf("%d bytes are charged for 10 responses that wait, want %d at least", reading, least)
	}
	call.send(&infer.Response{Empty: true, Final: true})
	if reads != 12 {
		t.Errorf("the client has got %d responses, want 12", reads)
	}
	k.settled(e)
}

// queue is a model without instances: its requests wait.
type queue struct{ *scheduler.Batcher }

func (q queue) Hold(string, int64) (Composed, error) { return q, nil }
func (queue) Batches() bool                          { return false }
func (queue) Dims(string) []int64                    { return nil }
func (queue) TakesDevices() bool                     { return true }
func (queue) Release()                               {}

func (q queue) Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	return q.Begin(ctx, req, send)
}

// TestChargesMatchTheHeap compares the charge of requests in flight with the growth of the heap,
// for ensembles that are large in each respect.
func TestChargesMatchTheHeap(t *testing.T) {
	const n = 500
	var fan, wide, outs, names []string
	for i := range n {
		fan = append(fan, fmt.Sprintf("m(IN=A)->OUT=B%d", i))
		wide = append(wide, fmt.Sprintf("IN%d=A", i))
		outs = append(outs, fmt.Sprintf("OUT%d=B%d", i, i))
		names = append(names, fmt.Sprint("B", i))
	}
	all := strings.Join(names, " ")
	for _, c := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"many steps", ParseEnsemble("A", all, fan...), nil},
		{"many steps, one of them wanted", ParseEnsemble("A", all, fan...), names[:1]},
		{"many steps, all of them wanted", ParseEnsemble("A", all, fan...), names},
		{"a long chain", largeChain(n), nil},
		{"a long chain, wanted", largeChain(n), []string{"B"}},
		{"many inputs", ParseEnsemble("A", "B", "m("+strings.Join(wide, ",")+")->OUT=B"), nil},
		{"many inputs, wanted", ParseEnsemble("A", "B", "m("+strings.Join(wide, ",")+")->OUT=B"), []string{"B"}},
		{"many outputs", ParseEnsemble("A", all, "m(IN=A)->"+strings.Join(outs, ",")), nil},
		{"many outputs, wanted", ParseEnsemble("A", all, "m(IN=A)->"+strings.Join(outs, ",")), names},
		{"many tensors that stay", ParseEnsemble("A", "C", "m(IN=A)->"+strings.Join(outs, ","), "m("+strings.ReplaceAll(strings.Join(outs, ","), "OUT", "IN")+")->OUT=C"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: &CountingObserver{}, MaxQueue: 1 << 20})
			account := budget.New(budget.Config{Limit: 1 << 30})
			c.config.Composer, c.config.Observer, c.config.Memory = queue{model}, &CountingObserver{}, account
			e := New(c.config)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			const requests = 20
			ended := make(chan struct{}, requests)
			before := testkit.LiveHeap()
			for range requests {
				req := &infer.Request{Outputs: c.want, Inputs: []infer.Tensor{{Name: "A", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{1}}}}
				if err := e.Submit(ctx, req, func(*infer.Response) { ended <- struct{}{} }); err != nil {
					t.Fatal(err)
				}
			}
			grown, charged := testkit.LiveHeap()-before, account.Total()
			t.Logf("the heap has grown by %d bytes, %d are charged", grown/requests, charged/requests)
			if 10*charged < 9*grown || charged > 4*grown {
				t.Errorf("the heap has grown by %d bytes, %d are charged", grown, charged)
			}
			cancel()
			for range requests {
				<-ended
			}
			if err := e.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := account.Total(); n != 0 {
				t.Errorf("%d bytes are charged at the end", n)
			}
			runtime.KeepAlive(model)
		})
	}
}
