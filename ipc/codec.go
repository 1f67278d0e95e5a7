package ipc

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Descriptor describes a tensor and the location of its bytes.
type Descriptor struct {
	Name    uint16 // index in the direction's table of names
	Type    uint8  // infer.DataType
	Region  uint32
	Offset  uint64
	Length  uint64
	Ticket  uint64
	Element uint32 // 1 + the common length of all elements of BYTES, or 0
	Mapping uint32 // the stub's number of the client's region, for InClient; otherwise 0
	Shape   []int64
}

// Size returns the size of the descriptor in a frame.
func (d *Descriptor) Size() int { return DescriptorSize + 8*len(d.Shape) }

// Put writes the descriptor and returns the rest of b.
func (d *Descriptor) Put(b []byte) []byte {
	_ = b[DescriptorSize-1]
	le.PutUint16(b[0:], d.Name)
	b[2] = d.Type
	b[3] = uint8(len(d.Shape))
	le.PutUint32(b[4:], d.Region)
	le.PutUint64(b[8:], d.Offset)
	le.PutUint64(b[16:], d.Length)
	le.PutUint64(b[24:], d.Ticket)
	le.PutUint32(b[32:], d.Element)
	le.PutUint32(b[36:], d.Mapping)
	b = b[DescriptorSize:]
	for _, dim := range d.Shape {
		le.PutUint64(b, uint64(dim))
		b = b[8:]
	}
	return b
}

// RequestHead is the fixed part of a request in EXECUTE.
type RequestHead struct {
	Handle      uint64
	Correlation uint64
	Timeout     uint64 // µs
	Flags       uint32
	Inputs      uint16
	Outputs     uint16 // AllOutputs: none were named
	ID          uint32 // bytes of each string
	Parameters  uint32
	CorrelText  uint32
	Trace       uint32
	CorrelKind  uint32 // CorrelationNumber or CorrelationText
	Places      uint32 // of outputs, after the requested outputs
	Priority    uint64 // 1 is the highest, 0 the model's default
}

// Put writes the head and returns the rest of b.
func (h *RequestHead) Put(b []byte) []byte {
	_ = b[RequestSize-1]
	le.PutUint64(b[0:], h.Handle)
	le.PutUint64(b[8:], h.Correlation)
	le.PutUint64(b[16:], h.Timeout)
	le.PutUint32(b[24:], h.Flags)
	le.PutUint16(b[28:], h.Inputs)
	le.PutUint16(b[30:], h.Outputs)
	le.PutUint32(b[32:], h.ID)
	le.PutUint32(b[36:], h.Parameters)
	le.PutUint32(b[40:], h.CorrelText)
	le.PutUint32(b[44:], h.Trace)
	le.PutUint32(b[48:], h.CorrelKind)
	le.PutUint32(b[52:], h.Places)
	le.PutUint64(b[56:], h.Priority)
	return b[RequestSize:]
}

// reader reads values from a body and records the first missing one.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) take(n uint64, what string) []byte {
	if r.err != nil {
		return nil
	}
	// Compared by subtraction: n comes from the stub, and pos+n could overflow.
	if n > uint64(len(r.b)-r.pos) {
		r.err = Broken("frame", "%s takes %d bytes at %d of a body of %d", what, n, r.pos, len(r.b))
		return nil
	}
	b := r.b[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b
}

// pad skips to the next multiple of 8; the last item of a body need not be padded.
func (r *reader) pad() {
	r.pos = min(Align8(r.pos), len(r.b))
}

// ExecutedBody is the body of EXECUTED without its responses, which NextResponse reads one after
// another.
type ExecutedBody struct {
	Responses uint32
	Failed    bool
	Skipped   bool   // not executed: the batch was withdrawn
	Reported  bool   // Begun and Ended are set
	Called    uint64 // CLOCK_MONOTONIC ns, like the next three
	Returned  uint64
	Begun     uint64 // by the author of a plugin
	Ended     uint64
	Tickets   []byte // 8 bytes each
	Text      []byte // why the batch failed

	r reader
}

// ParseExecuted reads the head of an EXECUTED body.
func ParseExecuted(body []byte) (ExecutedBody, error) {
	e := ExecutedBody{r: reader{b: body}}
	head := e.r.take(ExecutedSize, "head of EXECUTED")
	if e.r.err != nil {
		return e, e.r.err
	}
	e.Responses = le.Uint32(head[0:])
	status := le.Uint32(head[4:])
	e.Called, e.Returned = le.Uint64(head[8:]), le.Uint64(head[16:])
	tickets, text := le.Uint32(head[24:]), le.Uint32(head[28:])
	switch status {
	case StatusExecuted:
	case StatusFailed:
		e.Failed = true
	case StatusSkipped:
		e.Skipped = true
		if e.Responses != 0 {
			return e, Broken("frame", "EXECUTED of a batch that was skipped has %d responses", e.Responses)
		}
	case StatusReported:
		e.Reported = true
		if text != ReportedSize {
			return e, Broken("frame", "times of EXECUTED have %d bytes, want %d", text, ReportedSize)
		}
	default:
		return e, Broken("frame", "status of EXECUTED is %d, want at most %d", status, StatusReported)
	}
	// Both are numbers of 32 bits, so the products do not overflow. Nothing is allocated for them:
	// take returns parts of the body.
	e.Tickets = e.r.take(8*uint64(tickets), "tickets of EXECUTED")
	e.Text = e.r.take(uint64(text), "text of EXECUTED")
	e.r.pad()
	if e.Reported && e.r.err == nil {
		e.Begun, e.Ended, e.Text = le.Uint64(e.Text), le.Uint64(e.Text[8:]), nil
	}
	if e.r.err == nil && !utf8.Valid(e.Text) {
		e.r.err = Broken("utf8", "text of EXECUTED is not UTF-8")
	}
	return e, e.r.err
}

// NextResponse reads the next response of the body; ok is false after the last. The slices of out
// are valid as long as the body. Inline tensor bytes follow the last response.
func (e *ExecutedBody) NextResponse(out *ResponseBody) (ok bool, err error) {
	if e.Responses == 0 {
		return false, nil
	}
	e.Responses--
	e.r.response(out)
	return e.r.err == nil, e.r.err
}

// ResponseBody is one response of a stub.
type ResponseBody struct {
	Handle     uint64
	Flags      uint32
	Code       uint16
	Outputs    []Descriptor // reused by the next call
	Parameters []byte       // JSON
	Error      []byte
	Version    int64 // in INFER_RESPONSE: of the model that has answered
	// Shapes is memory of the caller that outlives the body: shapes are stored in its capacity as
	// long as they fit. The next call uses it up.
	Shapes []int64
}

// ParseResponse reads the body of RESPONSE.
func ParseResponse(body []byte, out *ResponseBody) (tickets []byte, err error) {
	r := reader{b: body}
	head := r.take(8, "head of RESPONSE")
	if r.err != nil {
		return nil, r.err
	}
	tickets = r.take(8*uint64(le.Uint32(head)), "tickets of RESPONSE")
	r.response(out) // inline tensor bytes follow it
	return tickets, r.err
}

// PutCredit writes the body of CREDIT: the responses and bytes of one request that have left the
// server.
func PutCredit(b []byte, responses uint32, bytes uint64) {
	_ = b[CreditSize-1]
	le.PutUint32(b[0:], responses)
	le.PutUint32(b[4:], 0)
	le.PutUint64(b[8:], bytes)
}

// MetricBody is the body of METRIC.
type MetricBody struct {
	Operation uint32
	Value     float64
}

// ParseMetric reads the body of METRIC.
func ParseMetric(body []byte) (MetricBody, error) {
	if len(body) != 16 || le.Uint32(body[4:]) != 0 {
		return MetricBody{}, Broken("frame", "METRIC has %d bytes, want 16, the second four of them 0", len(body))
	}
	return MetricBody{le.Uint32(body), math.Float64frombits(le.Uint64(body[8:]))}, nil
}

// Ticket returns the i-th ticket of a list.
func Ticket(list []byte, i int) uint64 { return le.Uint64(list[8*i:]) }

func (r *reader) response(out *ResponseBody) { r.responseOf(out, ofResponses) }

// responseOf reads a response whose outputs may lie in the named regions.
func (r *reader) responseOf(out *ResponseBody, named regions) {
	head := r.take(ResponseSize, "head of a response")
	if r.err != nil {
		return
	}
	out.Handle = le.Uint64(head[0:])
	out.Flags = le.Uint32(head[8:])
	outputs := le.Uint16(head[12:])
	out.Code = le.Uint16(head[14:])
	parameters, text := le.Uint32(head[16:]), le.Uint32(head[20:])
	out.Version = int64(le.Uint64(head[24:]))
	if out.Flags&^(FlagPresent|FlagFinal|FlagError) != 0 && out.Flags != FlagReschedule && out.Flags != FlagFailure {
		r.err = Broken("frame", "flags of a response are %#x", out.Flags)
		return
	}
	// The list grows with the descriptors that exist, not to the stub's number: a frame of 64 KiB
	// holds about 1,600 of them.
	out.Outputs = out.Outputs[:0]
	free := out.Shapes
	out.Shapes = nil
	for range outputs {
		out.Outputs = append(out.Outputs, Descriptor{}) // bound: the descriptors in the frame
		r.descriptor(&out.Outputs[len(out.Outputs)-1], named, &free)
		if r.err != nil {
			out.Outputs = out.Outputs[:len(out.Outputs)-1]
			return
		}
	}
	out.Parameters = r.take(uint64(parameters), "parameters of a response")
	out.Error = r.take(uint64(text), "error text of a response")
	r.pad()
	// Checked for all data from stubs: protobuf refuses to send other strings, and the front end
	// could not name the culprit.
	if r.err == nil && !(utf8.Valid(out.Parameters) && utf8.Valid(out.Error)) {
		r.err = Broken("utf8", "strings of a response are not UTF-8")
	}
}

// regions is a set of regions, a bit for each.
type regions uint32

const (
	ofBodies    regions = 1<<InFrame | 1<<InRequests | 1<<InArena
	ofRequests          = ofBodies | 1<<InDevice
	ofResponses         = ofRequests | 1<<InClient | 1<<InDevicePlace
	ofStubs     regions = 1<<InFrame | 1<<InRequests // for a stub that accepts nothing else
)

// descriptor reads a descriptor and makes every check that does not depend on types, names and the
// content of regions. It may name the given regions. The shape is stored in the rest of spare, if
// it fits.
func (r *reader) descriptor(d *Descriptor, named regions, spare *[]int64) {
	head := r.take(DescriptorSize, "descriptor")
	if r.err != nil {
		return
	}
	*d = Descriptor{
		Name: le.Uint16(head[0:]), Type: head[2], Region: le.Uint32(head[4:]), Offset: le.Uint64(head[8:]),
		Length: le.Uint64(head[16:]), Ticket: le.Uint64(head[24:]), Element: le.Uint32(head[32:]),
		Mapping: le.Uint32(head[36:]),
	}
	rank := int(head[3])
	if rank > MaxRank {
		r.err = Broken("descriptor", "rank is %d, want at most %d", rank, MaxRank)
		return
	}
	dims := r.take(8*uint64(rank), "dimensions")
	if r.err != nil {
		return
	}
	// Copied, because the shape outlives the frame: it becomes that of the client's tensor.
	if free := (*spare)[len(*spare):]; rank > 0 && rank <= cap(free) {
		d.Shape = free[:rank:rank]
		*spare = (*spare)[:len(*spare)+rank]
	} else {
		d.Shape = make([]int64, rank)
	}
	for i := range d.Shape {
		d.Shape[i] = int64(le.Uint64(dims[8*i:]))
		if d.Shape[i] < 0 {
			r.err = Broken("descriptor", "dimension %d is %d, want 0 or more", i, d.Shape[i])
			return
		}
	}
	if d.Region >= 32 || named&(1<<d.Region) == 0 {
		r.err = Broken("descriptor", "region is %d, want one of the bits of %#b", d.Region, named)
	}
	// InlineBytes, Loans.Borrow or Arena.Lend checks the range itself. This check only makes the
	// conversion safe.
	if d.Length > math.MaxInt64 {
		r.err = Broken("descriptor", "length is %d", d.Length)
	}
}

// InlineBytes returns the bytes of a descriptor whose region is InFrame, given
// the frame's body.
func (d *Descriptor) InlineBytes(body []byte) ([]byte, error) {
	// An offset below HeaderSize wraps around, and is rejected before begin is used.
	begin := d.Offset - HeaderSize
	if d.Offset < HeaderSize || begin > uint64(len(body)) || d.Length > uint64(len(body))-begin {
		return nil, Broken("descriptor", "bytes [%d, +%d) lie outside the frame of %d", d.Offset, d.Length, len(body)+HeaderSize)
	}
	return body[begin : begin+d.Length : begin+d.Length], nil
}

// ParseSpilled reads the descriptor of a spilled body, which must lie in region.
func ParseSpilled(body []byte, region uint32) (Descriptor, error) {
	r := reader{b: body}
	var d Descriptor
	r.descriptor(&d, ofBodies, new([]int64))
	if r.err == nil && (len(body) != DescriptorSize || len(d.Shape) != 0) {
		r.err = Broken("frame", "a spilled body is described by %d bytes of rank %d, want %d of rank 0", len(body), len(d.Shape), DescriptorSize)
	}
	if r.err == nil && d.Region != region {
		r.err = Broken("descriptor", "a spilled body lies in region %d, want %d", d.Region, region)
	}
	return d, r.err
}

// String prints a descriptor for logs.
func (d *Descriptor) String() string {
	return fmt.Sprintf("name %d type %d shape %v region %d [%d, +%d)", d.Name, d.Type, d.Shape, d.Region, d.Offset, d.Length)
}
