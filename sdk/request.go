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
	// ReleaseAll ends the backend's use of the request.
	ReleaseAll = execution.ReleaseAll
	// ReleaseReschedule returns the request to the scheduler, which sends it again as the next request
	// of its sequence. It requires iterative_sequence in the config. The request may have had any
	// number of responses, but no final one.
	ReleaseReschedule = execution.ReleaseReschedule
)

// Request is one inference request, lent to an instance until it is released. Different requests
// may be used concurrently, also after Execute has returned. A single request must not be used by
// two goroutines at once.
type Request execution.Request

func (r *Request) own() *execution.Request { return (*execution.Request)(r) }

// ID returns the request's id, or "" if its client gave none.
func (r *Request) ID() string { return r.own().Infer().ID }

// CorrelationNumber returns the correlation id of a sequence if it is a number, and 0 if the
// request has no correlation id. It returns an error if the id is a string.
func (r *Request) CorrelationNumber() (uint64, error) { return r.own().CorrelationNumber() }

// CorrelationText returns the correlation id of a sequence if it is a string. It returns an error
// if the id is a number.
func (r *Request) CorrelationText() (string, error) { return r.own().CorrelationText() }

// Flags returns the flags of the request's sequence: SequenceStart, SequenceEnd, both or neither.
func (r *Request) Flags() uint32 { return r.own().Infer().Flags }

// Priority returns the request's priority: 1 is the highest, 0 the model's default.
func (r *Request) Priority() uint64 { return r.own().Infer().Priority }

// TimeoutMicros returns the client's timeout in µs, or 0 if there is no timeout.
func (r *Request) TimeoutMicros() uint64 { return r.own().Infer().TimeoutMicros }

// Trace identifies the trace of a request, so that a backend can pass it on to other services.
type Trace struct {
	// ID is the trace's number in trace files.
	ID uint64
	// Context is the W3C context of the request's span, as JSON: {"traceparent":"…"}, plus
	// "tracestate" if the client sent one. It is "" if traces have no context, as with mode=triton.
	Context string
}

// Trace returns the request's trace, or false if the request is not traced. Requests to other
// models of the server belong to the same trace if InferRequest.From is set or the context of
// Execute is used.
func (r *Request) Trace() (Trace, bool) {
	id, context, ok := r.own().Trace()
	return Trace{id, context}, ok
}

// TraceActivity records an activity of the backend in the request's trace. at is a time from Now; 0
// means now. It does nothing if the request is not traced. In OpenTelemetry mode, names that end in
// "_START" and "_END" form nested spans. A trace holds at most 1,000 activities, and a name at most
// 256 bytes. TraceActivity must be called before the release.
func (r *Request) TraceActivity(name string, at int64) error { return r.own().Activity(name, at) }

// BatchSize returns the first dimension of the inputs if the model has max_batch_size, else 0.
func (r *Request) BatchSize() int64 { return r.own().Infer().BatchSize }

// ParameterCount returns the number of custom parameters.
func (r *Request) ParameterCount() int { return len(r.own().Infer().Parameters) }

// Parameters returns the custom parameters in their order. The caller must not change them.
func (r *Request) Parameters() []Parameter { return r.own().Infer().Parameters }

// Parameter returns the custom parameter at an index.
func (r *Request) Parameter(index int) (Parameter, error) { return r.own().Parameter(index) }

// InputCount returns the number of inputs.
func (r *Request) InputCount() int { return r.own().InputCount() }

// Input returns the input of the given name.
func (r *Request) Input(name string) (*Input, error) {
	in, err := r.own().Input(name)
	return (*Input)(in), err
}

// InputAt returns the input at an index. The order of inputs is not specified, so Input is safer.
func (r *Request) InputAt(index int) (*Input, error) {
	in, err := r.own().InputAt(index)
	return (*Input)(in), err
}

// Outputs returns the names of the requested outputs; an empty slice means all. The caller must not
// change it.
func (r *Request) Outputs() []string { return r.own().Infer().Outputs }

// Wants reports whether the client has requested an output.
func (r *Request) Wants(output string) bool {
	names := r.Outputs()
	for _, name := range names {
		if name == output {
			return true
		}
	}
	return len(names) == 0
}

// Cancelled reports whether no client waits for the response any more. The backend must respond to
// the request and release it anyway.
func (r *Request) Cancelled() bool { return r.own().Cancelled() }

// Context returns a context that is cancelled when no client waits for the response any more, or
// when the server stops.
func (r *Request) Context() context.Context { return r.own().Context() }

// NewResponse creates a response to the request. Only one goroutine may use it at a time. It must
// be sent or discarded.
func (r *Request) NewResponse() (*Response, error) {
	p, err := r.own().NewResponse()
	return (*Response)(p), err
}

// Factory returns a factory that creates responses to the request even after its release.
func (r *Request) Factory() *ResponseFactory { return (*ResponseFactory)(r.own().Factory()) }

// Release ends the backend's use of the request (ReleaseAll) or returns it to the scheduler
// (ReleaseReschedule). It is called once, and the inputs must not be used afterwards. If
// ReleaseReschedule fails, the backend still holds the request; any other error is a fault of the
// backend.
func (r *Request) Release(flags uint32) error { return r.own().Release(flags) }

// Input is one tensor of a request, in one buffer. It is valid until the request is released.
type Input execution.Input

func (in *Input) own() *execution.Input { return (*execution.Input)(in) }

// Name returns the input's name.
func (in *Input) Name() string { return in.own().Tensor().Name }

// DataType returns the type of the input's elements.
func (in *Input) DataType() DataType { return in.own().Tensor().DataType }

// Shape returns the input's shape, including the batch dimension and after reshape. The caller must
// not change it.
func (in *Input) Shape() []int64 { return in.own().Tensor().Shape }

// Data returns the input's bytes: row-major, little-endian, and nil once the request has been
// released. They must not be written, because others may share them.
func (in *Input) Data() []byte { return in.own().Data() }

// Elements returns the elements of a BYTES input as subslices of Data. It returns an error if Data
// is malformed.
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
