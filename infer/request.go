package infer

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer/trace"
)

// Sequence flags of a request.
const (
	SequenceStart uint32 = 1
	SequenceEnd   uint32 = 2
)

// LatestVersion requests the highest version that is ready.
const LatestVersion int64 = -1

// ParameterKind selects the field of a Parameter that holds its value.
type ParameterKind uint8

// The kinds of parameters.
const (
	StringParameter ParameterKind = 1
	IntParameter    ParameterKind = 2
	BoolParameter   ParameterKind = 3
	DoubleParameter ParameterKind = 4
)

// Parameter is a custom parameter of a request or a response. Names may repeat; the order is the
// sender's.
type Parameter struct {
	Name   string
	Kind   ParameterKind
	String string
	Int    int64
	Bool   bool
	Double float64
}

// CorrelationID identifies a sequence by a number or a text. The zero value identifies none.
type CorrelationID struct {
	Number uint64
	Text   string
}

// IsZero reports whether there is no correlation id.
func (c CorrelationID) IsZero() bool { return c.Number == 0 && c.Text == "" }

// Request is one inference request.
type Request struct {
	Model         string
	Version       int64 // LatestVersion, or a version number
	ID            string
	Correlation   CorrelationID
	Flags         uint32 // SequenceStart | SequenceEnd, and bits that only models use
	Priority      uint64 // 0 is the model's default, 1 the highest
	TimeoutMicros uint64 // 0: none
	Parameters    []Parameter
	Inputs        []Tensor
	Outputs       []string // names that were asked for; empty means all
	// Places says where the client wants outputs; usually nil. A backend may write an output there
	// itself (Written).
	Places []Place

	// Caller is the execution that makes this request; nil for a client's request.
	Caller *Caller
	// Made is when a model made this request, in ns of CLOCK_MONOTONIC; its timeout starts then. 0:
	// it starts when a scheduler gets the request. The model may have chosen the value.
	Made int64
	// Costs, if not nil, adds up the executions for an ensemble's request.
	Costs *Costs
	// Trace is the trace of this request; usually nil.
	Trace *trace.Trace

	// Raw marks a request whose single input has only Data, with RawPrefix bytes of capacity behind
	// it. Validation adds name, type and shape.
	Raw bool
	// BatchSize is the first dimension of the inputs of a batching model, else 0. Validation sets
	// it.
	BatchSize int64
	// Entered, if not nil, is called by Infer when the scheduler has accepted the request. It may
	// not be called at all.
	Entered func()

	// Padding marks a request without a client that fills an empty slot of a batch. Its outputs are
	// dropped.
	Padding bool
	// Parts are the requests that a scheduler has merged into this one; usually nil.
	Parts []*Request
}

// RawPrefix is the size of the length before an element of Bytes.
const RawPrefix = 4

// Caller is the execution in which a model makes a BLS request.
type Caller struct {
	Model   string
	Version int64
	// Requests are the requests of the execution; at least one if the backend knows the execution.
	// They may have been answered meanwhile.
	Requests []*Request
	// Holding reports whether the execution holds its instance until this request has ended, as far
	// as the backend can know.
	Holding bool
	// Backend is data of the backend that made the Caller.
	Backend any

	depth int
}

// NewCaller returns a Caller. It replaces a merged request by its parts, which the packages above
// know.
func NewCaller(model string, version int64, requests []*Request, holding bool) *Caller {
	for i, r := range requests {
		if len(r.Parts) > 0 {
			requests = slices.Replace(slices.Clone(requests), i, i+1, r.Parts...) // bound: the requests of an execution
			break                                                                 // a merged request is alone in its batch
		}
	}
	c := &Caller{Model: model, Version: version, Requests: requests, Holding: holding, depth: 1}
	for _, r := range requests {
		c.depth = max(c.depth, r.Depth()+1)
	}
	return c
}

// Depth returns the number of nested executions around a request: 0 for a client's, one more than
// that of its callers for a model's.
func (r *Request) Depth() int {
	if r.Caller == nil {
		return 0
	}
	return r.Caller.depth
}

// Input returns the input of the given name, or nil.
func (r *Request) Input(name string) *Tensor {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return &r.Inputs[i]
		}
	}
	return nil
}

// LogPrefix returns the beginning of many error texts: "[request id: <id>] ", with "<id_unknown>"
// if the request has no id.
func (r *Request) LogPrefix() string {
	id := r.ID
	if id == "" {
		id = "<id_unknown>"
	}
	return "[request id: " + id + "] "
}

// Sender receives the responses of one request. It is never called concurrently, nor after a
// response with Final set. It owns the response and must not block for long.
type Sender func(*Response)

// Handler executes inferences.
type Handler interface {
	// Infer executes req and passes its responses to send. It returns after the last response, or
	// at once with an error, usually an *Error, if the request was rejected: then send was not
	// called and nothing was counted.
	//
	// The request's tensors stay the caller's: they must not change, and their Memory must stay
	// valid, until Infer returns. When ctx ends, a queued request is answered with Cancelled; an
	// executing one is told and ends as its model decides.
	Infer(ctx context.Context, req *Request, send Sender) error
}

// Submitter executes inferences for callers that do not wait.
type Submitter interface {
	// Submit is Handler.Infer, but returns when the request has been accepted, perhaps after send
	// has been called. The request's tensors must stay valid until the last response.
	Submit(ctx context.Context, req *Request, send Sender) error
}

// Costs adds up the costs of all executions for a request, in ns. Executions may run concurrently.
type Costs struct {
	Input  atomic.Int64 // preparing the inputs of the models
	Infer  atomic.Int64 // running the models
	Output atomic.Int64 // sending their responses
}

// Add adds one execution.
func (c *Costs) Add(input, infer, output int64) {
	c.Input.Add(input)
	c.Infer.Add(infer)
	c.Output.Add(output)
}
