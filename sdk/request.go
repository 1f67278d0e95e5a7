package sdk

import (
	"context"
	"encoding/binary"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// Flags of a request of a sequence.
const (
	SequenceStart = infer.SequenceStart
	SequenceEnd   = infer.SequenceEnd
)

// Flags of Request.Release.
const (
	// ReleaseAll gives the request up.
	ReleaseAll = execution.ReleaseAll
	// ReleaseReschedule gives the request back in order to get it again, as the next one of its sequence; only where the config
	// has iterative_sequence. It may have had any number of responses, and no final one.
	ReleaseReschedule = execution.ReleaseReschedule
)

// Request is one inference request, lent to an instance until it is released. Different requests may be used by different
// goroutines, also after Execute has returned; one request by one goroutine at a time.
type Request execution.Request

func (r *Request) own() *execution.Request { return (*execution.Request)(r) }

// ID returns the request's id, "" if its client gave none.
func (r *Request) ID() string { return r.own().Infer().ID }

// CorrelationNumber returns the correlation id of a sequence that has a number, 0 of a request that has none. For a text it fails.
func (r *Request) CorrelationNumber() (uint64, error) { return r.own().CorrelationNumber() }

// CorrelationText returns the correlation id of a sequence that has a text. For a number it fails.
func (r *Request) CorrelationText() (string, error) { return r.own().CorrelationText() }

// Flags returns the flags of its sequence: SequenceStart, SequenceEnd, both or none.
func (r *Request) Flags() uint32 { return r.own().Infer().Flags }

// Priority returns the request's priority: 1 is the highest, 0 the model's default.
func (r *Request) Priority() uint64 { return r.own().Infer().Priority }

// TimeoutMicros returns the timeout that the client gave, in µs; 0: no timeout.
func (r *Request) TimeoutMicros() uint64 { return r.own().Infer().TimeoutMicros }

// Trace identifies the trace of a request, for what its backend sends to other services.
type Trace struct {
	// ID is the trace's number in files of traces.
	ID uint64
	// Context is the W3C context of the request's span, as JSON: {"traceparent":"…"}, with "tracestate" where there is one. It is "" where traces
	// have none, as in mode=triton.
	Context string
}

// Trace returns the request's trace; false if it is not traced. Requests to other models of the server are traced with it by
// InferRequest.From, or by Execute's context.
func (r *Request) Trace() (Trace, bool) {
	id, context, ok := r.own().Trace()
	return Trace{id, context}, ok
}

// TraceActivity notes in the request's trace what its backend has done, at a time of Now; 0 is now. Of a request that is not traced it does nothing. In
// OpenTelemetry mode names that end in "_START" and "_END" make spans, one inside another. A trace takes 1,000 activities, a name has up to 256 bytes. It is called before
// the release.
func (r *Request) TraceActivity(name string, at int64) error { return r.own().Activity(name, at) }

// BatchSize returns the first dimension of the inputs of a model with max_batch_size, 0 of others.
func (r *Request) BatchSize() int64 { return r.own().Infer().BatchSize }

// ParameterCount returns how many custom parameters there are.
func (r *Request) ParameterCount() int { return len(r.own().Infer().Parameters) }

// Parameters returns the custom parameters in their order. They are not changed.
func (r *Request) Parameters() []Parameter { return r.own().Infer().Parameters }

// Parameter returns the custom parameter at a place.
func (r *Request) Parameter(index int) (Parameter, error) { return r.own().Parameter(index) }

// InputCount returns how many inputs there are.
func (r *Request) InputCount() int { return r.own().InputCount() }

// Input returns the input of the given name.
func (r *Request) Input(name string) (*Input, error) {
	in, err := r.own().Input(name)
	return (*Input)(in), err
}

// InputAt returns the input at a place. The order of inputs is not specified: names are safer.
func (r *Request) InputAt(index int) (*Input, error) {
	in, err := r.own().InputAt(index)
	return (*Input)(in), err
}

// Outputs returns the names of the outputs that the client wants; none means all. The slice is not changed.
func (r *Request) Outputs() []string { return r.own().Infer().Outputs }

// Wants reports whether the client wants an output.
func (r *Request) Wants(output string) bool {
	names := r.Outputs()
	for _, name := range names {
		if name == output {
			return true
		}
	}
	return len(names) == 0
}

// Cancelled reports whether no client waits for the answer any more. The request is answered and released all the same.
func (r *Request) Cancelled() bool { return r.own().Cancelled() }

// Context ends when no client waits for the answer any more, or the server stops.
func (r *Request) Context() context.Context { return r.own().Context() }

// NewResponse makes a response to the request. It is for one goroutine at a time, and is sent or discarded.
func (r *Request) NewResponse() (*Response, error) {
	p, err := r.own().NewResponse()
	return (*Response)(p), err
}

// Factory returns what makes responses to the request, also after its release.
func (r *Request) Factory() *ResponseFactory { return (*ResponseFactory)(r.own().Factory()) }

// Release gives the request up (ReleaseAll), or back (ReleaseReschedule), once; its inputs must not be used any more. It can
// fail with ReleaseReschedule alone, and the request stays the backend's then; other errors are faults of the backend.
func (r *Request) Release(flags uint32) error { return r.own().Release(flags) }

// Input is an input of a request: one tensor in one buffer, valid until the request is released.
type Input execution.Input

func (in *Input) own() *execution.Input { return (*execution.Input)(in) }

// Name returns its name.
func (in *Input) Name() string { return in.own().Tensor().Name }

// DataType returns the type of its elements.
func (in *Input) DataType() DataType { return in.own().Tensor().DataType }

// Shape returns its shape, with the batch dimension and after reshape. It is not changed.
func (in *Input) Shape() []int64 { return in.own().Tensor().Shape }

// Data returns its bytes: row-major, little-endian. They are read and never written, as others may have the same bytes; nil once
// the request has been released.
func (in *Input) Data() []byte { return in.own().Data() }

// Elements returns the elements of an input of BYTES, as parts of Data. It fails if Data is malformed.
func (in *Input) Elements() ([][]byte, error) {
	data := in.Data()
	var elements [][]byte
	if n, ok := infer.Elements(in.Shape()); ok && n <= int64(len(data)/4) {
		elements = make([][]byte, 0, n)
	}
	for len(data) > 0 {
		if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
			return nil, infer.Errorf(infer.InvalidArg, "input '%s' of BYTES is cut off after %d elements", in.Name(), len(elements))
		}
		n := int(binary.LittleEndian.Uint32(data))
		elements = append(elements, data[4:4+n:4+n])
		data = data[4+n:]
	}
	return elements, nil
}
