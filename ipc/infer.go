package ipc

import "unicode/utf8"

// Sizes of INFER and INFER_RESPONSE, in bytes.
const (
	InferSize         = 32 // head of INFER's body, before the model's name
	InferResponseSize = 8  // head of INFER_RESPONSE's body
)

// Flags of INFER.
const (
	// InferStream accepts any number of responses instead of exactly one.
	InferStream uint32 = 1
	// InferHolding means that execute of the batch has not returned, and may be waiting for this
	// request.
	InferHolding uint32 = 2
	// InferGuess means that the batch was being executed when another thread made the request,
	// which may be unrelated.
	InferGuess uint32 = 4
)

// The values of STOP_INFER.
const (
	StopCancel uint32 = 1 // responses are still delivered
	StopForget uint32 = 2 // responses are dropped
)

// PreferCPU is the preferred memory of an INFER whose outputs should be on the host; 0 is no
// preference, 1 GPU.
const PreferCPU = 2

// lastMemory is the highest number of a preferred memory.
const lastMemory = PreferCPU

// The hint of INFER_RESPONSE about the called model, if inputs of the request lay on devices:
// whether it accepts them there, or they were copied to the host.
const (
	HintDevices uint32 = 1
	HintHost    uint32 = 2
)

// InferBody is the body of INFER. The slices are valid as long as the body.
type InferBody struct {
	Batch   uint64 // in whose execution the request is made, 0 if unknown
	Version int64
	Flags   uint32
	Demand  uint32 // responses that may be sent before the first DEMAND
	Memory  uint32
	Model   []byte

	RequestBody
}

// RequestBody is one request, of EXECUTE or INFER. The slices are valid as long as the body.
type RequestBody struct {
	Head       RequestHead
	Inputs     []Descriptor // reused by the next call
	Outputs    []byte       // indices of names, 2 bytes each
	ID         []byte
	Parameters []byte // JSON
	CorrelText []byte
	Trace      []byte // in INFER: the trace text of EXECUTE to which this request belongs
	// Shapes is as in ResponseBody.
	Shapes []int64
}

// ParseInfer reads an INFER body, which inline tensor bytes follow.
func ParseInfer(body []byte, out *InferBody) error {
	r := reader{b: body}
	head := r.take(InferSize, "head of INFER")
	if r.err != nil {
		return r.err
	}
	out.Batch, out.Version = le.Uint64(head[0:]), int64(le.Uint64(head[8:]))
	out.Flags, out.Demand, out.Memory = le.Uint32(head[16:]), le.Uint32(head[20:]), le.Uint32(head[28:])
	if out.Flags&^(InferStream|InferHolding|InferGuess) != 0 {
		return Broken("frame", "flags of INFER are %#x", out.Flags)
	}
	if out.Memory > lastMemory {
		return Broken("frame", "preferred memory of INFER is %d, want at most %d", out.Memory, lastMemory)
	}
	out.Model = r.take(uint64(le.Uint32(head[24:])), "name of a model")
	r.pad()
	r.request(&out.RequestBody, ofRequests)
	if r.err == nil && !(utf8.Valid(out.Model) && out.valid()) {
		r.err = Broken("utf8", "strings of INFER are not UTF-8")
	}
	return r.err
}

// valid reports whether the strings of a request are UTF-8.
func (b *RequestBody) valid() bool {
	return utf8.Valid(b.ID) && utf8.Valid(b.Parameters) && utf8.Valid(b.CorrelText) && utf8.Valid(b.Trace)
}

// request reads a request as encoded in EXECUTE, whose inputs may lie in the named regions. It
// skips places.
func (r *reader) request(out *RequestBody, named regions) {
	b := r.take(RequestSize, "head of a request")
	if r.err != nil {
		return
	}
	out.Head = RequestHead{
		Handle: le.Uint64(b[0:]), Correlation: le.Uint64(b[8:]), Timeout: le.Uint64(b[16:]), Flags: le.Uint32(b[24:]),
		Inputs: le.Uint16(b[28:]), Outputs: le.Uint16(b[30:]), ID: le.Uint32(b[32:]), Parameters: le.Uint32(b[36:]),
		CorrelText: le.Uint32(b[40:]), Trace: le.Uint32(b[44:]), CorrelKind: le.Uint32(b[48:]), Places: le.Uint32(b[52:]),
		Priority: le.Uint64(b[56:]),
	}
	h := &out.Head
	out.Inputs = out.Inputs[:0]
	free := out.Shapes
	out.Shapes = nil
	for range h.Inputs {
		out.Inputs = append(out.Inputs, Descriptor{}) // bound: the descriptors in the frame
		r.descriptor(&out.Inputs[len(out.Inputs)-1], named, &free)
		if r.err != nil {
			out.Inputs = out.Inputs[:len(out.Inputs)-1]
			return
		}
	}
	out.Outputs = nil
	if h.Outputs != AllOutputs {
		out.Outputs = r.take(2*uint64(h.Outputs), "outputs of a request")
		r.pad()
	}
	r.take(PlaceSize*uint64(h.Places), "places of a request")
	out.ID = r.take(uint64(h.ID), "id of a request")
	out.Parameters = r.take(uint64(h.Parameters), "parameters of a request")
	out.CorrelText = r.take(uint64(h.CorrelText), "correlation id of a request")
	out.Trace = r.take(uint64(h.Trace), "trace of a request")
	r.pad()
}

// OutputName returns the i-th requested output, an index of a name.
func (b *RequestBody) OutputName(i int) uint16 { return le.Uint16(b.Outputs[2*i:]) }

// ParseWord reads the body of DEMAND or STOP_INFER: a number, and 4 reserved bytes.
func ParseWord(kind Kind, body []byte) (uint32, error) {
	if len(body) != 8 {
		return 0, Broken("frame", "%s has %d bytes, want 8", kind, len(body))
	}
	n := le.Uint32(body)
	if kind == StopInfer && n != StopCancel && n != StopForget {
		return 0, Broken("frame", "STOP_INFER says %d, want %d or %d", n, StopCancel, StopForget)
	}
	return n, nil
}

// ResponseHead is the fixed part of a response.
type ResponseHead struct {
	Handle     uint64 // of the request; 0 in INFER_RESPONSE
	Flags      uint32
	Outputs    uint16
	Code       uint16
	Parameters uint32 // bytes
	Error      uint32 // bytes
	Version    int64  // in INFER_RESPONSE: of the model that has answered
}

// Put writes the head and returns the rest of b.
func (h *ResponseHead) Put(b []byte) []byte {
	_ = b[ResponseSize-1]
	le.PutUint64(b[0:], h.Handle)
	le.PutUint32(b[8:], h.Flags)
	le.PutUint16(b[12:], h.Outputs)
	le.PutUint16(b[14:], h.Code)
	le.PutUint32(b[16:], h.Parameters)
	le.PutUint32(b[20:], h.Error)
	le.PutUint64(b[24:], uint64(h.Version))
	return b[ResponseSize:]
}
