package ipc

// The stub's side of EXECUTE and its responses: requests are decoded, responses encoded. Frames of
// the supervisor are decoded with the same care as those of a stub; an error means that the frame
// is not understood.

// ExecuteBody is the body of EXECUTE without its requests, which NextRequest reads one after
// another.
type ExecuteBody struct {
	Requests uint32
	Copies   bool // ExecuteCopies
	r        reader
}

// ParseExecute reads the head of an EXECUTE body.
func ParseExecute(body []byte) (ExecuteBody, error) {
	e := ExecuteBody{r: reader{b: body}}
	if head := e.r.take(ExecuteSize, "head of EXECUTE"); e.r.err == nil {
		e.Requests = le.Uint32(head)
		e.Copies = le.Uint32(head[4:])&ExecuteCopies != 0
	}
	return e, e.r.err
}

// NextRequest reads the next request of the body; ok is false after the last. With an error, out
// has the inputs that could be read. Inputs lie in the frame or in *requests*: other regions are
// used only for stubs that have asked for them.
func (e *ExecuteBody) NextRequest(out *RequestBody) (ok bool, err error) {
	out.Inputs = out.Inputs[:0]
	if e.Requests == 0 {
		return false, nil
	}
	e.Requests--
	e.r.request(out, ofStubs)
	if e.r.err == nil && !out.valid() {
		e.r.err = Broken("utf8", "strings of a request are not UTF-8")
	}
	return e.r.err == nil, e.r.err
}

// ExecutedHead is the fixed part of EXECUTED's body.
type ExecutedHead struct {
	Responses uint32
	Status    uint32
	Called    int64 // CLOCK_MONOTONIC ns
	Returned  int64
	Tickets   uint32
	Text      uint32 // bytes
}

// Put writes the head and returns the rest of b.
func (h *ExecutedHead) Put(b []byte) []byte {
	_ = b[ExecutedSize-1]
	le.PutUint32(b[0:], h.Responses)
	le.PutUint32(b[4:], h.Status)
	le.PutUint64(b[8:], uint64(h.Called))
	le.PutUint64(b[16:], uint64(h.Returned))
	le.PutUint32(b[24:], h.Tickets)
	le.PutUint32(b[28:], h.Text)
	return b[ExecutedSize:]
}

// PutReported writes the text of EXECUTED with StatusReported.
func PutReported(b []byte, begun, ended int64) {
	_ = b[ReportedSize-1]
	le.PutUint64(b[0:], uint64(begun))
	le.PutUint64(b[8:], uint64(ended))
}

// PutTickets writes tickets one after another and returns the rest of b.
func PutTickets(b []byte, tickets []uint64) []byte {
	for _, ticket := range tickets {
		le.PutUint64(b, ticket)
		b = b[8:]
	}
	return b
}

// ParseCredit reads the body of CREDIT.
func ParseCredit(body []byte) (responses uint32, bytes uint64, err error) {
	if len(body) != CreditSize {
		return 0, 0, Broken("frame", "CREDIT has %d bytes, want %d", len(body), CreditSize)
	}
	return le.Uint32(body), le.Uint64(body[8:]), nil
}

// ParseHandles returns the number of handles in the body of CANCEL; Ticket returns each of them.
func ParseHandles(body []byte) (n int, err error) {
	if len(body)%8 != 0 {
		return 0, Broken("frame", "CANCEL has %d bytes, want a multiple of 8", len(body))
	}
	return len(body) / 8, nil
}

// ParseInferResponse reads the body of INFER_RESPONSE, which inline tensor bytes follow. With an
// error, out has the outputs that could be read.
func ParseInferResponse(body []byte, out *ResponseBody) error {
	out.Outputs = out.Outputs[:0]
	r := reader{b: body}
	r.take(InferResponseSize, "head of INFER_RESPONSE")
	r.responseOf(out, ofStubs)
	return r.err
}

// InferHead is the fixed part of INFER's body, before the model's name.
type InferHead struct {
	Batch   uint64
	Version int64
	Flags   uint32
	Demand  uint32
	Model   uint32 // bytes of the name
	Memory  uint32
}

// Put writes the head and returns the rest of b.
func (h *InferHead) Put(b []byte) []byte {
	_ = b[InferSize-1]
	le.PutUint64(b[0:], h.Batch)
	le.PutUint64(b[8:], uint64(h.Version))
	le.PutUint32(b[16:], h.Flags)
	le.PutUint32(b[20:], h.Demand)
	le.PutUint32(b[24:], h.Model)
	le.PutUint32(b[28:], h.Memory)
	return b[InferSize:]
}

// PutWord writes the body of DEMAND, STOP_INFER or MAPPED, of 8 bytes: a number, and 4 reserved
// bytes.
func PutWord(b []byte, n uint32) { le.PutUint64(b, uint64(n)) }

// PutMetric writes the body of METRIC, of 16 bytes.
func PutMetric(b []byte, operation uint32, bits uint64) {
	le.PutUint64(b, uint64(operation))
	le.PutUint64(b[8:], bits)
}
