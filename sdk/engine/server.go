package engine

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// server implements sdk.Server for a model.
type server struct{ model *Model }

// call is one request that a model makes (BLS), until its last response.
type call struct {
	of      *Model
	request infer.Request
	cancel  context.CancelFunc
	batch   *execution.Batch // of its caller; nil if unknown
	// memory holds the inputs that are passed on.
	memory []infer.Memory
	await  func(done <-chan struct{}) // RemoteHost.Await, nil of other hosts

	mu      sync.Mutex
	queue   []*infer.Response
	arrived chan struct{} // has a value after queue has grown
	dropped bool          // responses are dropped
}

// calls tracks the calls that are cancelled with the clients of their batches.
type calls struct {
	mu  sync.Mutex
	all map[*call]struct{}
}

func (c *calls) add(one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[*call]struct{})
	}
	c.all[one] = struct{}{}
}

func (c *calls) remove(one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, one)
}

// cancelFor cancels the calls of a task's batch if no client waits for any request of it.
func (c *calls) cancelFor(task *backend.Task) {
	c.mu.Lock()
	var gone []*call
	for one := range c.all {
		if one.batch.Has(task) {
			gone = append(gone, one)
		}
	}
	c.mu.Unlock()
	for _, one := range gone {
		if one.batch.Abandoned() {
			one.cancel()
		}
	}
}

// begin checks a request, finds its execution and submits it. waits reports whether the caller
// waits for it.
func (s *server) begin(ctx context.Context, q *sdk.InferRequest, stream, waits bool) (*call, error) {
	m := s.model
	host := m.version.Host
	if host == nil {
		return nil, infer.Errorf(infer.Unavailable, "%s cannot make requests here", m.log)
	}
	if ctx == nil || q == nil {
		return nil, infer.Errorf(infer.InvalidArg, "%s makes a request of another model without a context, or without a request", m.log)
	}
	c := &call{of: m, arrived: make(chan struct{}, 1)}
	if err := c.read(q); err != nil {
		c.release()
		return nil, err
	}
	submit, release, err := c.target(ctx, host, stream)
	if err != nil {
		c.release()
		return nil, err
	}
	defer release()
	ctx, c.cancel = context.WithCancel(ctx)
	c.callers(ctx, q, waits)
	if q.From != nil {
		from := q.From.Context()
		stop := context.AfterFunc(from, panics.Guard(m.backend.env.Own, panics.Request, c.cancel, nil))
		context.AfterFunc(ctx, panics.Guard(m.backend.env.Own, panics.Request, func() { stop() }, nil))
	}
	if c.batch != nil {
		m.calls.add(c)
	}
	if err := submit(ctx, &c.request, c.deliver); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// target finds the called version, checks that it accepts the request, and returns the function
// that submits it. The caller calls release after that.
func (c *call) target(ctx context.Context, host backend.Host, stream bool) (
	submit func(context.Context, *infer.Request, infer.Sender) error, release func(), err error,
) {
	model := c.request.Model
	if remote, ok := host.(RemoteHost); ok {
		c.await = remote.Await
		return func(ctx context.Context, r *infer.Request, send infer.Sender) error {
			return remote.SubmitRemote(ctx, r, stream, send)
		}, func() {}, nil
	}
	target, err := host.Target(model, c.request.Version)
	if err != nil {
		return nil, nil, err
	}
	if target.Decoupled() && !stream {
		err = infer.Errorf(infer.Unsupported, "model '%s' is decoupled and may send any number of responses: InferAsync and InferStream take them", model)
	} else if target.AsksReady() && target.Ready(ctx) != nil {
		err = infer.Errorf(infer.Unavailable, "model '%s' is not ready", model)
	}
	if err != nil {
		target.Release()
		return nil, nil, err
	}
	return target.Submit, target.Release, nil
}

// RemoteHost is a backend.Host in another process.
type RemoteHost interface {
	backend.Host
	// SubmitRemote is Submit, for any number of responses or for exactly one. The server checks
	// whether the model may send more and whether it is ready.
	SubmitRemote(ctx context.Context, request *infer.Request, stream bool, send infer.Sender) error
	// Await may poll for a response for a moment; it returns when done has a value.
	Await(done <-chan struct{})
}

// callers returns the requests on whose behalf the call is made.
func (c *call) callers(ctx context.Context, q *sdk.InferRequest, waits bool) {
	var requests []*infer.Request
	executing := false
	if q.From != nil {
		r := (*execution.Request)(q.From)
		c.batch = r.Batch()
		if requests, executing = c.batch.Requests(); !executing {
			requests = []*infer.Request{r.Infer()}
		}
		if t := r.Infer().Trace; t != nil {
			c.request.Trace = t.Child()
		}
	} else if c.batch = execution.Of(ctx); c.batch != nil {
		requests, executing = c.batch.Requests()
		if len(requests) > 0 && requests[0].Trace != nil {
			c.request.Trace = requests[0].Trace.Child()
		}
	}
	c.request.Caller = infer.NewCaller(c.of.version.Name, c.of.version.Version, requests, waits && executing)
	c.request.Made = backend.Now()
}

// read converts a request of the author's.
func (c *call) read(q *sdk.InferRequest) error {
	r := &c.request
	r.Model, r.Version, r.ID = q.Model, q.Version, q.ID
	if r.Version == 0 {
		r.Version = infer.LatestVersion
	}
	r.Correlation = infer.CorrelationID{Number: q.CorrelationNumber, Text: q.CorrelationText}
	r.Flags, r.Priority, r.TimeoutMicros = q.Flags, q.Priority, q.TimeoutMicros
	r.Parameters, r.Outputs = q.Parameters, q.Outputs
	r.Inputs = make([]infer.Tensor, len(q.Inputs))
	for i := range q.Inputs {
		from := &q.Inputs[i]
		t := infer.Tensor{Name: from.Name, DataType: from.DataType, Shape: from.Shape, Data: from.Data}
		if from.Of != nil {
			data := (*execution.Input)(from.Of).Data()
			in := (*execution.Input)(from.Of).Tensor()
			if data == nil {
				if n, _ := infer.Elements(in.Shape); n > 0 {
					return infer.Errorf(infer.Internal, "input '%s' has no bytes any more, as its request has been released", in.Name)
				}
			}
			t.DataType, t.Data, t.Memory = in.DataType, data, in.Memory
			if t.Shape == nil {
				t.Shape = in.Shape
			}
			if t.Memory != nil {
				t.Memory.Retain()
				c.memory = append(c.memory, t.Memory)
			}
		}
		r.Inputs[i] = t
	}
	return r.Check()
}

// release releases the memory of inputs.
func (c *call) release() {
	for _, m := range c.memory {
		m.Release()
	}
	c.memory = nil
}

// end is called with the last response, or without any.
func (c *call) end() {
	if c.batch != nil {
		c.of.calls.remove(c)
	}
	c.cancel()
	c.release()
}

// deliver implements infer.Sender.
func (c *call) deliver(r *infer.Response) {
	last := r.Final
	c.mu.Lock()
	dropped := c.dropped
	if !dropped {
		c.queue = append(c.queue, r)
	}
	c.mu.Unlock()
	if dropped {
		r.Release()
	} else {
		select {
		case c.arrived <- struct{}{}:
		default:
		}
	}
	if last {
		c.end()
	}
}

// next waits for a response. An error means that ctx has ended.
func (c *call) next(ctx context.Context) (*infer.Response, error) {
	for {
		c.mu.Lock()
		if len(c.queue) > 0 {
			r := c.queue[0]
			c.queue[0] = nil
			c.queue = c.queue[1:]
			c.mu.Unlock()
			return r, nil
		}
		c.mu.Unlock()
		if c.await != nil {
			c.await(c.arrived)
		}
		select {
		case <-c.arrived:
		case <-ctx.Done():
			return nil, infer.AsError(context.Cause(ctx))
		}
	}
}

// drop releases all responses that have arrived or will arrive.
func (c *call) drop() {
	c.cancel()
	c.mu.Lock()
	left := c.queue
	c.queue, c.dropped = nil, true
	c.mu.Unlock()
	for _, r := range left {
		r.Release()
	}
}

// Infer implements sdk.Server.
func (s *server) Infer(ctx context.Context, q *sdk.InferRequest) (*sdk.InferResponse, error) {
	c, err := s.begin(ctx, q, false, true)
	if err != nil {
		return nil, err
	}
	var first *infer.Response
	for {
		r, err := c.next(ctx)
		if err != nil {
			c.drop()
			if first != nil {
				first.Release()
			}
			return nil, err
		}
		last := r.Final
		if first == nil && !(r.Empty && r.Err == nil) {
			first = r
		} else {
			r.Release()
		}
		if last {
			break
		}
	}
	switch {
	case first == nil:
		return nil, infer.Errorf(infer.Internal, "model '%s' has sent no response", q.Model)
	case first.Err != nil:
		err := first.Err
		first.Release()
		return nil, err
	}
	r := s.response(first)
	r.Final = true
	return r, nil
}

// InferAsync implements sdk.Server.
func (s *server) InferAsync(ctx context.Context, q *sdk.InferRequest, receive func(*sdk.InferResponse)) error {
	if receive == nil {
		return infer.Errorf(infer.InvalidArg, "%s makes a request of another model without a function for its responses", s.model.log)
	}
	c, err := s.begin(ctx, q, true, false)
	if err != nil {
		return err
	}
	panics.Go(s.model.backend.env.Own, panics.Request, func() { s.hand(c, receive) }, nil)
	return nil
}

// hand passes the responses of a call to an author's function. If the function ends the goroutine,
// another goroutine continues.
func (s *server) hand(c *call, receive func(*sdk.InferResponse)) {
	const name = "the function of InferAsync"
	last, returned := false, true
	defer func() {
		if returned {
			return
		}
		_ = s.model.backend.gone(name, s.model.log)
		if !last {
			panics.Go(s.model.backend.env.Own, panics.Request, func() { s.hand(c, receive) }, nil)
		}
	}()
	for !last {
		r, _ := c.next(context.Background()) // the last response comes in any case
		last, returned = r.Final, false
		_ = s.model.backend.hook(name, s.model.log, func() error {
			receive(s.response(r))
			return nil
		})
		returned = true
	}
}

// InferStream implements sdk.Server.
func (s *server) InferStream(ctx context.Context, q *sdk.InferRequest) iter.Seq2[*sdk.InferResponse, error] {
	return func(yield func(*sdk.InferResponse, error) bool) {
		c, err := s.begin(ctx, q, true, true)
		if err != nil {
			yield(nil, err)
			return
		}
		defer c.drop()
		for last := false; !last; {
			r, err := c.next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if last = r.Final; last && r.Empty && r.Err == nil {
				r.Release()
				return
			}
			if !yield(s.response(r), nil) {
				return
			}
		}
	}
}

// response returns the author's view of a response. If the author drops it without Release, it is
// released later.
func (s *server) response(r *infer.Response) *sdk.InferResponse {
	own := sdk.InferResponse{
		ID: r.ID, Model: r.Model, Version: r.Version, Parameters: r.Parameters, Err: r.Err, Final: r.Final, Empty: r.Empty,
		Outputs: make([]sdk.Tensor, len(r.Outputs)),
	}
	owned := r.Slot != nil
	for i := range r.Outputs {
		t := &r.Outputs[i]
		owned = owned || t.Memory != nil
		own.Outputs[i] = sdk.Tensor{Name: t.Name, DataType: t.DataType, Shape: t.Shape, Data: t.Data}
	}
	if !owned {
		return sdk.NewInferResponse(own, nil)
	}
	held := &heldResponse{response: r}
	p := sdk.NewInferResponse(own, held.release)
	execution.WhenDropped(s.model.backend.env.Own, p, (*heldResponse).release, held)
	return p
}

// heldResponse is a response that the author holds.
type heldResponse struct {
	response *infer.Response
	released atomic.Bool
}

func (h *heldResponse) release() {
	if !h.released.Swap(true) {
		h.response.Release()
	}
}

// ModelReady implements sdk.Server.
func (s *server) ModelReady(ctx context.Context, model string, version int64) (bool, error) {
	host, err := s.host()
	if err != nil {
		return false, err
	}
	return host.ModelReady(ctx, model, latest(version))
}

// Decoupled implements sdk.Server.
func (s *server) Decoupled(model string, version int64) (bool, error) {
	host, err := s.host()
	if err != nil {
		return false, err
	}
	target, err := host.Target(model, latest(version))
	if err != nil {
		return false, err
	}
	defer target.Release()
	return target.Decoupled(), nil
}

// Load implements sdk.Server.
func (s *server) Load(ctx context.Context, model, config string, files map[string][]byte) error {
	host, err := s.host()
	if err != nil {
		return err
	}
	return host.Load(ctx, model, config, files)
}

// Unload implements sdk.Server.
func (s *server) Unload(ctx context.Context, model string, dependents bool) error {
	host, err := s.host()
	if err != nil {
		return err
	}
	return host.Unload(ctx, model, dependents)
}

func (s *server) host() (backend.Host, error) {
	if h := s.model.version.Host; h != nil {
		return h, nil
	}
	return nil, infer.Errorf(infer.Unavailable, "%s has no server here", s.model.log)
}

func latest(version int64) int64 {
	if version == 0 {
		return infer.LatestVersion
	}
	return version
}
