package infer

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/infer/trace"
)

// Sequence flags of a request.
const (
	SequenceStart uint32 = 1
	SequenceEnd   uint32 = 2
)

// LatestVersion asks for the highest version that is ready.
const LatestVersion int64 = -1

// ParameterKind says which field of a Parameter holds its value.
type ParameterKind uint8

// The kinds of parameters.
const (
	StringParameter ParameterKind = 1
	IntParameter    ParameterKind = 2
	BoolParameter   ParameterKind = 3
	DoubleParameter ParameterKind = 4
)

// Parameter is one custom parameter of a request or a response. Names may
// repeat; the order is the sender's.
type Parameter struct {
	Name   string
	Kind   ParameterKind
	String string
	Int    int64
	Bool   bool
	Double float64
}

// CorrelationID ties the requests of a sequence together. It is a number or a
// text; the zero value means none.
type CorrelationID struct {
	Number uint64
	Text   string
}

// IsZero reports whether there is no correlation id.
func (c CorrelationID) IsZero() bool { return c.Number == 0 && c.Text == "" }

// Request is one inference, as it was asked for.
type Request struct {
	Model         string
	Version       int64 // LatestVersion, or a version number
	ID            string
	Correlation   CorrelationID
	Flags         uint32 // SequenceStart | SequenceEnd; models may set more, which only models read
	Priority      uint64 // 0 is the model's default, 1 the highest
	TimeoutMicros uint64 // 0 is none
	Parameters    []Parameter
	Inputs        []Tensor
	Outputs       []string // names that were asked for; empty means all
	// Places says of outputs that were asked for where their client wants them; nil mostly. A
	// backend may put an output there itself (Written), and need not.
	Places []Place

	// Caller is the execution that makes this request; nil for a client's.
	Caller *Caller
	// Made is when a model made this request, ns of CLOCK_MONOTONIC, from when on its
	// timeout counts; 0: when it comes to a scheduler. It may be the model's word.
	Made int64
	// Costs is where the maker of this request for another one wants its
	// executions added up; nil mostly.
	Costs *Costs
	// Trace is the record of this request; nil if it is not traced.
	Trace *trace.Trace

	// Raw marks a request whose single input came without name, type or shape:
	// Inputs holds one Tensor with Data alone, and validation deduces the rest. Data has
	// RawRoom bytes of capacity behind it.
	Raw bool
	// Replayed marks a request of a recording that is sent again: it is not recorded. Front ends set it where
	// requests are recorded.
	Replayed bool
	// BatchSize is the first dimension of the inputs of a batching model, else
	// 0. Validation sets it.
	BatchSize int64
	// Entered is called by Infer when the request has its place in the scheduler,
	// or not at all; it may be nil.
	Entered func()

	// Padding marks a request without a client: it fills a place in a batch,
	// and none of its outputs is wanted.
	Padding bool
	// Parts are the requests that a scheduler has merged into this one; nil mostly.
	Parts []*Request
}

// RawRoom is the size of the length before an element of Bytes. A raw request has as much room
// behind its bytes.
const RawRoom = 4

// ReplayHeader is the header, or metadata, that marks requests as Replayed, with the key of the
// directory of records.
const ReplayHeader = "nereid-replay"

// Caller says in which execution a model makes a request of its own (BLS).
type Caller struct {
	Model   string
	Version int64
	// Requests are those that the execution is about; there is at least one if
	// the backend knows the execution. They may have been answered meanwhile.
	Requests []*Request
	// Holding is true if the execution holds its instance and does not end before
	// this request has, as far as the backend can know.
	Holding bool
	// Backend is what the backend that made the Caller keeps with it; no other package
	// looks at it.
	Backend any

	depth int
}

// NewCaller makes a Caller. In the place of a merged request it keeps those that
// were merged, as the packages above know them.
func NewCaller(model string, version int64, requests []*Request, holding bool) *Caller {
	for i, r := range requests {
		if len(r.Parts) > 0 {
			requests = slices.Replace(slices.Clone(requests), i, i+1, r.Parts...)
			break // such a request is a batch by itself
		}
	}
	c := &Caller{Model: model, Version: version, Requests: requests, Holding: holding, depth: 1}
	for _, r := range requests {
		c.depth = max(c.depth, r.Depth()+1)
	}
	return c
}

// Depth counts the executions around a request: 0 for a client's, one more than
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

// LogPrefix is what many error texts begin with: "[request id: <id>] ", with
// "<id_unknown>" where the request has none.
func (r *Request) LogPrefix() string {
	id := r.ID
	if id == "" {
		id = "<id_unknown>"
	}
	return "[request id: " + id + "] "
}

// Sender receives the responses of one request. It is never called for one
// request from two goroutines at once, and not again after a response whose
// Final is set. It owns the response and must not block for long.
type Sender func(*Response)

// Handler runs inferences.
type Handler interface {
	// Infer runs req and hands its responses to send. It returns when the last
	// one has been handed over, or at once with an error, an *Error mostly, if
	// the request was refused: then send was not called and nothing was counted.
	//
	// The request's tensors stay the caller's: they must not change, and their
	// Memory must stay valid, until Infer returns. Packages that need bytes for
	// longer retain them. When ctx ends, a request that waits is answered with
	// Cancelled; a running one is told so and ends as its model decides.
	Infer(ctx context.Context, req *Request, send Sender) error
}

// Submitter runs inferences for callers that do not wait.
type Submitter interface {
	// Submit is Handler's Infer, but returns when the request has been accepted,
	// perhaps after send has been called, or fails as Infer does. The request's
	// tensors must stay valid until the last response.
	Submit(ctx context.Context, req *Request, send Sender) error
}
