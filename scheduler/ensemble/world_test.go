package ensemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// ParseEnsemble parses an ensemble in the short form of the tests: steps such as
// "m*(IN=A,IN1=B)->OUT=C". A star marks a decoupled model; the names on the left are the model's.
func ParseEnsemble(inputs, outputs string, steps ...string) Config {
	c := Config{Model: "e", Inputs: strings.Fields(inputs)}
	for _, out := range strings.Fields(outputs) {
		c.Outputs = append(c.Outputs, Output{Tensor: out, Dims: []int64{-1}})
	}
	links := func(text string) (list []Link) {
		for _, pair := range strings.Split(text, ",") {
			name, tensor, _ := strings.Cut(pair, "=")
			list = append(list, Link{name, tensor})
		}
		return list
	}
	for _, text := range steps {
		name, rest, _ := strings.Cut(text, "(")
		in, out, _ := strings.Cut(rest, ")->")
		s := Step{Model: strings.TrimSuffix(name, "*"), Version: infer.LatestVersion, Decoupled: strings.HasSuffix(name, "*"), Inputs: links(in), Outputs: links(out)}
		c.Decoupled = c.Decoupled || s.Decoupled
		c.Steps = append(c.Steps, s)
	}
	return c
}

// fakeComposer provides the models that an ensemble calls. Their requests wait until the test
// answers them.
type fakeComposer struct {
	t testing.TB

	mu      sync.Mutex
	batches map[string]bool // models with a batch dimension
	dims    []int64         // dims of all inputs
	devices bool
	missing string // a model that cannot be found
	refuse  map[string]error
	calls   []*stepCall // steps without a final response
	history []*infer.Request
	events  []string // steps that began, and responses to clients
	held    int
	lent    int // references to tensors and slots that are still held
	peak    int // the most slots kept at one time
	slots   int
	spins   func(model string, done <-chan struct{}) // if set, it is called to wait actively for a model
	answers []string                                 // the ensemble's responses as text
	raw     []*infer.Response
}

// stepCall is a request of a step.
type stepCall struct {
	model string
	ctx   context.Context
	req   *infer.Request
	send  infer.Sender
}

func newFakeComposer(t testing.TB) *fakeComposer {
	return &fakeComposer{t: t, batches: make(map[string]bool), dims: []int64{-1}, refuse: make(map[string]error)}
}

// Hold implements Composer.
func (k *fakeComposer) Hold(model string, _ int64) (Composed, error) {
	if model == k.missing {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", model)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held++
	return &member{k, model}, nil
}

type member struct {
	fakeComposer *fakeComposer
	model        string
}

func (m *member) Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	k := m.fakeComposer
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuse[m.model]; err != nil {
		return nil, err
	}
	if k.batches[m.model] && len(req.Inputs) > 0 {
		req.BatchSize = req.Inputs[0].Shape[0]
	}
	k.calls = append(k.calls, &stepCall{m.model, ctx, req, send})
	k.history = append(k.history, req)
	k.events = append(k.events, m.model+"("+tensorsText(req.Inputs)+")"+sequenceText(req.Correlation, req.Flags))
	if k.spins != nil {
		return m, nil
	}
	return nil, nil
}

// Await implements backend.Awaiter.
func (m *member) Await(done <-chan struct{}) { m.fakeComposer.spins(m.model, done) }

func (m *member) Batches() bool       { return m.fakeComposer.batches[m.model] }
func (m *member) Dims(string) []int64 { return m.fakeComposer.dims }

func (m *member) TakesDevices() bool { return m.fakeComposer.devices }
func (m *member) Release() {
	m.fakeComposer.mu.Lock()
	m.fakeComposer.held--
	m.fakeComposer.mu.Unlock()
}

// countedMemory is memory with counted references.
type countedMemory struct {
	fakeComposer *fakeComposer
	place        bool
	refs         int
}

func (l *countedMemory) Retain() { l.add(1) }

func (l *countedMemory) Release() { l.add(-1) }

func (l *countedMemory) add(n int) {
	k := l.fakeComposer
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.refs == 0 {
		k.t.Error("memory is used after it was given up")
	}
	l.refs += n
	k.lent += n
	if l.place && l.refs == 0 {
		k.slots--
	}
}

func (k *fakeComposer) countedMemory(place bool) *countedMemory {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lent++
	if place {
		k.slots++
		k.peak = max(k.peak, k.slots)
	}
	return &countedMemory{k, place, 1}
}

// tensor returns a tensor with this text; "" is an empty tensor.
func (k *fakeComposer) tensor(name, text string) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(len(text))}, Data: []byte(text), Memory: k.countedMemory(false)}
}

// take removes and returns the first request of a model, which must exist.
func (k *fakeComposer) take(model string) *stepCall {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.IndexFunc(k.calls, func(c *stepCall) bool { return c.model == model })
	if at < 0 {
		k.t.Fatalf("model %s has no request, there are %s", model, k.textLocked())
	}
	c := k.calls[at]
	k.calls = slices.Delete(k.calls, at, at+1)
	return c
}

func (k *fakeComposer) textLocked() string {
	var list []string
	for _, c := range k.calls {
		list = append(list, c.model+"("+tensorsText(c.req.Inputs)+")")
	}
	return strings.Join(list, " ")
}

func tensorsText(tensors []infer.Tensor) string {
	var list []string
	for _, t := range tensors {
		list = append(list, t.Name+"="+string(t.Data))
	}
	return strings.Join(list, ",")
}

// answer makes a model respond to its first request: "OUT=1,OUT1=2" are outputs, a final "." marks
// the last response, "!text" is an error, and "" is a response without outputs.
func (k *fakeComposer) answer(model, text string) {
	k.t.Helper()
	c := k.take(model)
	r := &infer.Response{Final: strings.HasSuffix(text, ".")}
	text = strings.TrimSuffix(text, ".")
	if message, failed := strings.CutPrefix(text, "!"); failed {
		r.Err = infer.Errorf(infer.Unsupported, "%s", message)
	} else if text == "" {
		r.Empty = true
	} else if text != "nothing" {
		text, parameters, _ := strings.Cut(text, ";")
		for _, pair := range strings.Split(text, ",") {
			name, value, _ := strings.Cut(pair, "=")
			r.Outputs = append(r.Outputs, k.tensor(name, value))
		}
		r.Parameters = parseParameters(parameters)
	}
	if !r.Final {
		if !r.Empty {
			r.Slot = k.countedMemory(true)
		}
		k.mu.Lock()
		k.calls = slices.Insert(k.calls, 0, c)
		k.mu.Unlock()
	}
	c.send(r)
}

// parseParameters parses "name=text", "name:=1" and "name?=true".
func parseParameters(text string) (list []infer.Parameter) {
	for _, pair := range strings.FieldsFunc(text, func(c rune) bool { return c == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasSuffix(name, ":"):
			p := infer.Parameter{Name: strings.TrimSuffix(name, ":"), Kind: infer.IntParameter}
			_, _ = fmt.Sscan(value, &p.Int)
			list = append(list, p)
		case strings.HasSuffix(name, "?"):
			list = append(list, infer.Parameter{Name: strings.TrimSuffix(name, "?"), Kind: infer.BoolParameter, Bool: value == "true"})
		default:
			list = append(list, infer.Parameter{Name: name, Kind: infer.StringParameter, String: value})
		}
	}
	return list
}

// responseText is the reverse of answer, without parameters.
func responseText(r *infer.Response) string {
	text := tensorsText(r.Outputs)
	if r.Err != nil {
		text = "!" + r.Err.Code.String() + ": " + r.Err.Message
	}
	if r.Empty {
		text = ""
	}
	if r.Final {
		text += "."
	}
	return text
}

// heard is the Sender of a client. It records the responses.
func (k *fakeComposer) heard(r *infer.Response) {
	text := responseText(r)
	r.Release()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers = append(k.answers, text)
	k.raw = append(k.raw, r)
}

// ask sends a request whose inputs are "A=1 B=2".
func (k *fakeComposer) ask(ctx context.Context, e *Scheduler, outputs []string, inputs string) {
	k.t.Helper()
	req := &infer.Request{Model: "e", ID: "q", Outputs: outputs}
	for _, pair := range strings.Fields(inputs) {
		name, value, _ := strings.Cut(pair, "=")
		req.Inputs = append(req.Inputs, k.tensor(name, value))
	}
	k.submit(ctx, e, req)
}

func (k *fakeComposer) submit(ctx context.Context, e *Scheduler, req *infer.Request) {
	k.t.Helper()
	err := e.Submit(ctx, req, func(r *infer.Response) {
		if r.Final { // the client owns its inputs again
			for i := range req.Inputs {
				req.Inputs[i].Release()
			}
		}
		k.mu.Lock()
		k.events = append(k.events, req.ID+" gets "+cmp.Or(responseText(r), "nothing")+sequenceOf(r))
		k.mu.Unlock()
		k.heard(r)
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// said returns the client's responses since the last call.
func (k *fakeComposer) said() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := strings.Join(k.answers, " ")
	k.answers = nil
	return text
}

// settled fails the test if anything of the ensemble is left.
func (k *fakeComposer) settled(e *Scheduler) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held != 0 || k.lent != 0 || k.slots != 0 {
		k.t.Errorf("%d models are held, %d references to tensors and %d slots are kept at the end", k.held, k.lent, k.slots)
	}
	if n := e.InFlight(); n != 0 {
		k.t.Errorf("%d requests are inside at the end", n)
	}
	if m := e.config.Memory; m != nil && m.Total() != 0 {
		k.t.Errorf("%d bytes are charged at the end", m.Total())
	}
	for i, l := range e.limiters {
		if l.used != 0 || l.waiting.First != nil {
			k.t.Errorf("step %d has %d requests under way and the first waiting is %v at the end", i, l.used, l.waiting.First)
		}
	}
}

var errFull = errors.New("Exceeds maximum queue size")

// CountingObserver is an Observer that counts.
type CountingObserver struct{ executed, failed atomic.Int64 }

func (*CountingObserver) Pending(int)                      {}
func (c *CountingObserver) Executed(*scheduler.Execution)  { c.executed.Add(1) }
func (c *CountingObserver) Failed(scheduler.Reason, int64) { c.failed.Add(1) }
