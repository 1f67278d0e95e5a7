package process

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// encoder makes the frame EXECUTE of one batch. It is kept from batch to batch
// by its life and used under the instance's hand-over: one batch at a time.
type encoder struct {
	pool    *shm.Pool
	loans   *shm.Loans
	names   *names
	tensors []ipc.Descriptor
	heads   []ipc.RequestHead
	outputs []uint16
	strings []byte // parameters of all requests, one after another
	inline  [][]byte
	tickets []shm.Ticket
	head    int // bytes of the body before the tensor bytes
	size    int // bytes of the body
}

func (e *encoder) reset() {
	e.tensors, e.heads, e.outputs = e.tensors[:0], e.heads[:0], e.outputs[:0]
	e.strings, e.tickets = e.strings[:0], e.tickets[:0]
	clear(e.inline)
	e.inline = e.inline[:0]
}

// undo takes back what plan lent, when the frame could not be sent.
func (e *encoder) undo() {
	for _, t := range e.tickets {
		_ = e.loans.Return(t)
	}
	e.tickets = e.tickets[:0]
}

// plan decides where each tensor's bytes travel and how long the frame gets.
// Handles are the requests' in order. After an error nothing is lent.
func (e *encoder) plan(requests []*infer.Request, handles []uint64) error {
	e.reset()
	e.head = ipc.ExecuteSize
	for i, r := range requests {
		if err := checkRequest(r); err != nil {
			return err
		}
		from := len(e.strings)
		e.strings = appendParameters(e.strings, r.Parameters)
		h := ipc.RequestHead{
			Handle: handles[i], Correlation: r.Correlation.Number, Timeout: r.TimeoutMicros, Flags: r.Flags,
			Inputs: uint16(len(r.Inputs)), Outputs: ipc.AllOutputs, ID: uint32(len(r.ID)),
			Parameters: uint32(len(e.strings) - from), CorrelText: uint32(len(r.Correlation.Text)),
		}
		if r.Correlation.Text != "" {
			h.CorrelKind = ipc.CorrelationText
		}
		if r.Padding {
			h.Outputs = 0
		}
		if len(r.Outputs) > 0 {
			h.Outputs = 0
			for _, name := range r.Outputs {
				if index, ok := e.names.outputIndex(name); ok {
					e.outputs = append(e.outputs, index)
					h.Outputs++
				}
			}
			e.head += ipc.Align8(2 * int(h.Outputs))
		}
		e.heads = append(e.heads, h)
		e.head += ipc.RequestSize + ipc.Align8(len(r.ID)+int(h.Parameters)+len(r.Correlation.Text))
		for j := range r.Inputs {
			e.head += ipc.DescriptorSize + 8*len(r.Inputs[j].Shape)
		}
	}
	// Tensor bytes inside the frame begin at multiples of InlineAlign from the
	// frame's start.
	e.size = e.head
	for _, r := range requests {
		for j := range r.Inputs {
			if err := e.place(&r.Inputs[j]); err != nil {
				e.undo()
				return err
			}
		}
	}
	return nil
}

// place chooses where one tensor's bytes travel.
func (e *encoder) place(t *infer.Tensor) error {
	index, ok := e.names.index[t.Name]
	if !ok {
		return infer.Errorf(infer.Internal, "input %q is not in the model's table of names", t.Name)
	}
	d := ipc.Descriptor{Name: index, Type: uint8(t.DataType), Length: uint64(len(t.Data)), Shape: t.Shape}
	d.Element = element(t)
	begin := alignInline(e.size)
	if len(t.Data) <= ipc.MaxInline && begin+len(t.Data) <= ipc.MaxInlineBody {
		d.Region, d.Offset = ipc.InFrame, uint64(ipc.HeaderSize+begin)
		e.size = begin + len(t.Data)
		e.tensors = append(e.tensors, d)
		e.inline = append(e.inline, t.Data)
		return nil
	}
	block, offset, err := inPool(e.pool, t)
	if err != nil {
		return err
	}
	ticket, ok := e.loans.Lend(block)
	block.Release()
	if !ok {
		return ipc.ErrClosed
	}
	e.tickets = append(e.tickets, ticket)
	d.Region, d.Offset, d.Ticket = ipc.InRequests, offset, uint64(ticket)
	e.tensors = append(e.tensors, d)
	return nil
}

// element returns what a descriptor says of the elements' common length.
func element(t *infer.Tensor) uint32 {
	if t.DataType == infer.Bytes {
		if s := infer.ScanBytes(t.Data, math.MaxInt); s.Common >= 0 {
			return uint32(s.Common) + 1
		}
	}
	return 0
}

// inPool returns a retained block that holds the tensor's bytes: its own if
// they lie in the pool already, else a copy. A range that does not begin at its
// block's first byte is copied too: a stub drops the pages of whole blocks.
func inPool(pool *shm.Pool, t *infer.Tensor) (*shm.Block, uint64, error) {
	if block, ok := t.Memory.(*shm.Block); ok && block.In(pool) {
		if offset, ok := block.Locate(t.Data); ok && offset == block.Offset() {
			block.Retain()
			return block, offset, nil
		}
	}
	block, err := pool.Alloc(len(t.Data))
	if err != nil {
		return nil, 0, exhausted(pool, err)
	}
	copy(block.Bytes(), t.Data)
	return block, block.Offset(), nil
}

// exhausted says that the pool has no block now, with Triton's text.
func exhausted(pool *shm.Pool, err error) *infer.Error {
	return infer.Errorf(infer.Unavailable, "Failed to increase the shared memory pool size to %d bytes. If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: %v",
		pool.Stats().Reserved, err)
}

// alignInline returns where tensor bytes can begin, given the body's size so far.
func alignInline(size int) int {
	const a = ipc.InlineAlign
	return (ipc.HeaderSize+size+a-1)/a*a - ipc.HeaderSize
}

// write writes the planned body.
func (e *encoder) write(body []byte, requests []*infer.Request) {
	b := body
	putUint32(b[0:], uint32(len(requests)))
	putUint32(b[4:], 0)
	b = b[ipc.ExecuteSize:]
	tensors, outputs, strings, inline := e.tensors, e.outputs, e.strings, e.inline
	for i, r := range requests {
		h := &e.heads[i]
		b = h.Put(b)
		for range r.Inputs {
			d := &tensors[0]
			tensors = tensors[1:]
			b = d.Put(b)
			if d.Region == ipc.InFrame {
				copy(body[d.Offset-ipc.HeaderSize:], inline[0])
				inline = inline[1:]
			}
		}
		if h.Outputs != ipc.AllOutputs {
			n := int(h.Outputs)
			for k, index := range outputs[:n] {
				b[2*k], b[2*k+1] = byte(index), byte(index>>8)
			}
			outputs = outputs[n:]
			b = b[ipc.Align8(2*n):]
		}
		n := copy(b, r.ID)
		n += copy(b[n:], strings[:h.Parameters])
		strings = strings[h.Parameters:]
		n += copy(b[n:], r.Correlation.Text)
		b = b[ipc.Align8(n):]
	}
}

func putUint32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// appendParameters appends the JSON object that request.parameters() returns;
// nothing if there are none.
func appendParameters(b []byte, parameters []infer.Parameter) []byte {
	if len(parameters) == 0 {
		return b
	}
	sep := byte('{')
	for i := range parameters {
		p := &parameters[i]
		b = append(b, sep)
		sep = ','
		b = appendJSONString(b, p.Name)
		b = append(b, ':')
		switch p.Kind {
		case infer.StringParameter:
			b = appendJSONString(b, p.String)
		case infer.IntParameter:
			b = strconv.AppendInt(b, p.Int, 10)
		case infer.BoolParameter:
			b = strconv.AppendBool(b, p.Bool)
		case infer.DoubleParameter:
			b = appendJSONDouble(b, p.Double)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// appendJSONDouble writes whole numbers with ".0", so that they stay doubles,
// and what JSON does not know as stubs read it.
func appendJSONDouble(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case v == math.Trunc(v) && math.Abs(v) < 1e21:
		return append(strconv.AppendFloat(b, v, 'f', -1, 64), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // not possible for a string
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
