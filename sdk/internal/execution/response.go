package execution

import (
	"math"
	"sync/atomic"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// SendFinal is the flag of the last response.
const SendFinal uint32 = 1

// Response is one response of the author's, before it is sent. Only one goroutine may use it at a
// time.
type Response struct {
	up      infer.Response // passed on by Send
	request *Request
	held    *holding // memory that is this response's until it is sent; nil mostly
	// from holds the inputs whose memory is forwarded, at the indices of their outputs. Other entries
	// are nil or missing.
	from    []*Input
	few     [1]*Input // from begins here
	state   atomic.Uint32
	dimmed  uint16          // of dims
	filled  uint16          // of small, a multiple of 8
	tensors [1]infer.Tensor // up.Outputs begins here
	dims    [4]int64        // the first dimensions of outputs
	small   [32]byte        // the first bytes of outputs; aligned for any type of element
}

// used is the state of a response that has been sent or discarded.
const used = 1

// holding is the memory of outputs that have not been sent.
type holding struct {
	memory  []infer.Memory
	given   atomic.Bool // to the receiver of the response, or back
	tracker *Tracker
}

// release releases the memory, once.
func (h *holding) release() {
	if h == nil || h.given.Swap(true) {
		return
	}
	for _, m := range h.memory {
		m.Release()
	}
}

// Output adds an output of a type with elements of a fixed size, and returns its bytes, which the
// caller fills in.
func (p *Response) Output(name string, dataType infer.DataType, shape []int64) ([]byte, error) {
	size, ok := infer.ByteSize(dataType, shape)
	if !ok {
		if dataType == infer.Bytes {
			return nil, infer.Errorf(infer.InvalidArg, "output '%s' is of type BYTES: its size must be given", name)
		}
		return nil, infer.Errorf(infer.InvalidArg, "output '%s' of %s has shape %s, want a type and dimensions that give a size", name, dataType, infer.ShapeString(shape))
	}
	return p.add(name, dataType, shape, size)
}

// OutputSize adds an output of the given size in bytes.
func (p *Response) OutputSize(name string, dataType infer.DataType, shape []int64, size int64) ([]byte, error) {
	if dataType != infer.Bytes {
		if want, ok := infer.ByteSize(dataType, shape); !ok || want != size {
			return nil, infer.Errorf(infer.InvalidArg, "output '%s' of %s has shape %s and %d bytes, want as many bytes as these make", name, dataType, infer.ShapeString(shape), size)
		}
	} else if _, ok := infer.Elements(shape); !ok || size < 0 {
		return nil, infer.Errorf(infer.InvalidArg, "output '%s' of %s has shape %s and %d bytes, want dimensions and a size of 0 or more", name, dataType, infer.ShapeString(shape), size)
	}
	return p.add(name, dataType, shape, size)
}

// add adds an output and allocates it.
func (p *Response) add(name string, dataType infer.DataType, shape []int64, size int64) ([]byte, error) {
	if err := p.accepts(name, shape); err != nil {
		return nil, err
	}
	c := p.request.entry.batch.tracker
	var data []byte
	var memory infer.Memory
	switch {
	case size == 0:
	case size <= int64(len(p.small))-int64(p.filled):
		data = p.small[p.filled : p.filled+uint16(size) : p.filled+uint16(size)]
		p.filled += (uint16(size) + 7) &^ 7
	case size <= SmallOutput || c.Allocate == nil && size <= math.MaxInt:
		data = make([]byte, size)
	case c.Allocate == nil:
		return nil, infer.Errorf(infer.InvalidArg, "output '%s' has %d bytes, more than this machine can address", name, size)
	default:
		var err error
		if data, memory, err = c.Allocate(size); err != nil {
			return nil, err
		}
	}
	p.append(name, dataType, shape, data, memory)
	return data, nil
}

// Forward adds an output that shares the bytes of an input. The memory is retained when the
// response is sent, so a dropped response has nothing to release.
func (p *Response) Forward(name string, shape []int64, in *Input) error {
	t := in.tensor
	if shape == nil {
		shape = t.Shape
	}
	if err := p.accepts(name, shape); err != nil {
		return err
	}
	have, ok := infer.Elements(t.Shape)
	if !ok {
		return infer.Errorf(infer.InvalidArg, "input '%s' has shape %s, whose product overflows", t.Name, infer.ShapeString(t.Shape))
	}
	if want, ok := infer.Elements(shape); !ok || want != have {
		return infer.Errorf(infer.InvalidArg, "output '%s' has shape %s, want %d elements, as input '%s' has", name, infer.ShapeString(shape), have, t.Name)
	}
	data := in.Data()
	if data == nil && have > 0 {
		return infer.Errorf(infer.Internal, "input '%s' has no bytes any more, as its request has been released", t.Name)
	}
	p.append(name, t.DataType, shape, data, nil)
	if t.Memory != nil {
		if p.from == nil {
			p.from = p.few[:0]
		}
		for len(p.from) < len(p.up.Outputs)-1 {
			p.from = append(p.from, nil)
		}
		p.from = append(p.from, in)
	}
	return nil
}

// retain retains the memory of forwarded tensors, or returns false if an input has been released.
func (p *Response) retain() bool {
	for i, in := range p.from {
		if in == nil {
			continue
		}
		if !in.retain() {
			p.giveBack()
			return false
		}
		p.up.Outputs[i].Memory = in.tensor.Memory
	}
	return true
}

// giveBack releases the memory that retain has retained.
func (p *Response) giveBack() {
	for i, in := range p.from {
		if t := &p.up.Outputs[i]; in != nil && t.Memory != nil {
			t.Memory.Release()
			t.Memory = nil
		}
	}
	p.from = nil
}

// retain retains the input's memory, unless its request has been released.
func (in *Input) retain() bool {
	e := in.of.entry
	e.batch.mu.Lock()
	defer e.batch.mu.Unlock()
	if e.released {
		return false
	}
	in.tensor.Memory.Retain()
	return true
}

// accepts rejects duplicate names, names that are not in the config, and shapes that the server
// does not support.
func (p *Response) accepts(name string, shape []int64) error {
	if len(shape) > infer.MaxRank {
		return infer.Errorf(infer.InvalidArg, "output '%s' has %d dimensions, at most %d are allowed", name, len(shape), infer.MaxRank)
	}
	if p.state.Load() != 0 {
		return infer.Errorf(infer.Internal, "output '%s' is added to a response that has been sent", name)
	}
	for i := range p.up.Outputs {
		if p.up.Outputs[i].Name == name {
			return infer.Errorf(infer.AlreadyExists, "allocated buffer for output '%s' already exists", name)
		}
	}
	if c := p.request.entry.batch.tracker; !c.Outputs[name] {
		return infer.Errorf(infer.InvalidArg, "unexpected inference output '%s' for model '%s'", name, c.Model)
	}
	return nil
}

func (p *Response) append(name string, dataType infer.DataType, shape []int64, data []byte, memory infer.Memory) {
	var dims []int64
	if n := len(shape); n <= len(p.dims)-int(p.dimmed) {
		dims = p.dims[p.dimmed : int(p.dimmed)+n : int(p.dimmed)+n]
		p.dimmed += uint16(n)
	} else {
		dims = make([]int64, n)
	}
	copy(dims, shape)
	if memory != nil {
		p.hold(memory)
	}
	p.up.Outputs = append(p.up.Outputs, infer.Tensor{Name: name, DataType: dataType, Shape: dims, Data: data, Memory: memory})
}

// hold keeps memory until the response is sent. If the author drops the response unsent, the memory
// is released when that is detected.
func (p *Response) hold(memory infer.Memory) {
	if p.held == nil {
		p.held = &holding{tracker: p.request.entry.batch.tracker}
		WhenDropped(p.held.tracker.Log, p, (*holding).release, p.held)
	}
	p.held.memory = append(p.held.memory, memory)
}

// SetParameter adds a parameter: a string, an integer, a bool or a float.
func (p *Response) SetParameter(name string, value any) error {
	if p.state.Load() != 0 {
		return infer.Errorf(infer.Internal, "parameter '%s' is added to a response that has been sent", name)
	}
	parameter, err := NewParameter(name, value)
	if err != nil {
		return err
	}
	p.up.Parameters = append(p.up.Parameters, parameter)
	return nil
}

// NewParameter creates a parameter from a Go value.
func NewParameter(name string, value any) (infer.Parameter, error) {
	p := infer.Parameter{Name: name}
	if text, _ := value.(string); !utf8.ValidString(name) || !utf8.ValidString(text) {
		return p, infer.Errorf(infer.InvalidArg, "parameter %q is not UTF-8, in its name or its value", name)
	}
	switch v := value.(type) {
	case string:
		p.Kind, p.String = infer.StringParameter, v
	case bool:
		p.Kind, p.Bool = infer.BoolParameter, v
	case int:
		p.Kind, p.Int = infer.IntParameter, int64(v)
	case int32:
		p.Kind, p.Int = infer.IntParameter, int64(v)
	case int64:
		p.Kind, p.Int = infer.IntParameter, v
	case uint32:
		p.Kind, p.Int = infer.IntParameter, int64(v)
	case float64:
		p.Kind, p.Double = infer.DoubleParameter, v
	case float32:
		p.Kind, p.Double = infer.DoubleParameter, float64(v)
	default:
		return p, infer.Errorf(infer.InvalidArg, "parameter '%s' has a value of type %T, want a string, an integer, a bool or a float", name, value)
	}
	if math.IsNaN(p.Double) || math.IsInf(p.Double, 0) {
		return p, infer.Errorf(infer.InvalidArg, "parameter '%s' is %v, want a number that JSON has", name, p.Double)
	}
	return p, nil
}

// Discard drops a response without sending it.
func (p *Response) Discard() {
	if p.state.Swap(used) == 0 {
		p.drop()
	}
}

// drop releases the memory of the response.
func (p *Response) drop() {
	p.held.release()
	p.giveBack()
	p.up.Outputs, p.up.Parameters = nil, nil
}

// Send passes the response on, with err instead of its outputs unless err is nil.
func (p *Response) Send(flags uint32, err error) error {
	r := p.request
	if p.state.Swap(used) != 0 {
		const fault = "a response was sent that had been sent, or discarded, before"
		r.entry.batch.tracker.fault(r.request, fault)
		return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
	}
	if flags&^SendFinal != 0 {
		p.drop()
		return infer.Errorf(infer.InvalidArg, "flags of a response are %#x, want 0 or 1 (final)", flags)
	}
	failure := Failure(err)
	if failure == nil {
		failure = checkStrings(p.up.Outputs)
	}
	if failure == nil && !p.retain() {
		failure = infer.Errorf(infer.Internal, "%sa response was sent with the bytes of an input whose request had been released", r.request.LogPrefix())
		r.entry.batch.tracker.fault(r.request, "a response was sent with the bytes of an input whose request had been released; its client gets an error")
	}
	if failure != nil {
		p.drop()
		p.up.Err = failure
	}
	var bytes int64
	for i := range p.up.Outputs {
		bytes += int64(len(p.up.Outputs[i].Data))
	}
	p.up.Final = flags&SendFinal != 0
	return r.send(p, &p.up, bytes)
}

// checkStrings rejects BYTES outputs whose elements do not match their shapes.
func checkStrings(outputs []infer.Tensor) *infer.Error {
	for i := range outputs {
		t := &outputs[i]
		if t.DataType != infer.Bytes {
			continue
		}
		want, _ := infer.Elements(t.Shape) // checked when it was added
		if s := infer.ScanBytes(t.Data, math.MaxInt); s.Rest != 0 || int64(s.Count) != want {
			return infer.Errorf(infer.Internal, "output '%s' of BYTES%s has %d elements and %d bytes left over", t.Name, infer.ShapeString(t.Shape), s.Count, s.Rest)
		}
	}
	return nil
}

// send passes on p's response, or only a flag if p is nil.
func (r *Request) send(p *Response, up *infer.Response, bytes int64) error {
	e, b := r.entry, r.entry.batch
	c := b.tracker
	if e.window != nil && p != nil {
		if !e.window.enter(r.task, bytes, up.Final) {
			p.drop()
			return &infer.Error{Code: infer.Cancelled}
		}
		up.Slot = newSlot(e.window, bytes)
	}
	b.mu.Lock()
	fault := ""
	switch {
	case e.answered:
		fault = "a response was sent after the final one"
	case e.again:
		fault = "a response was sent after the request had been given back to be executed again"
	case p != nil && !c.Decoupled && e.responded:
		fault = "a second response was sent, though the model is not decoupled"
	}
	if fault != "" {
		b.mu.Unlock()
		if p != nil {
			p.drop()
			if up.Slot != nil {
				up.Slot.Release()
			}
		}
		c.fault(r.request, fault+"; it is dropped")
		return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
	}
	if p != nil {
		e.responded = true
		if p.held != nil {
			p.held.given.Store(true)
		}
		if up.Err != nil && !e.counted {
			e.failed = true
		}
	}
	if up.Final {
		e.answered = true
		e.window.end()
		if e.completeLocked() {
			c.forgetLocked(e)
		} else {
			c.answeredLocked(e)
		}
		if b.executing && !c.Decoupled {
			e.held = up
			b.mu.Unlock()
			return nil
		}
	}
	b.upLocked(e, up)
	return nil
}

// Factory creates responses to a request that may have been released.
type Factory struct {
	request *Request
	closed  atomic.Bool
}

// NewResponse creates a response.
func (f *Factory) NewResponse() (*Response, error) {
	if f.closed.Load() {
		return nil, f.used()
	}
	return f.request.NewResponse()
}

// Send sends flags (SendFinal) without a response.
func (f *Factory) Send(flags uint32) error {
	if f.closed.Load() {
		return f.used()
	}
	if flags != SendFinal {
		return infer.Errorf(infer.InvalidArg, "flags without a response are %#x, want 1 (final)", flags)
	}
	return f.request.send(nil, &infer.Response{Final: true, Empty: true}, 0)
}

func (f *Factory) used() error {
	const fault = "a response factory was used after it had been closed"
	r := f.request
	r.entry.batch.tracker.fault(r.request, fault)
	return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
}

// Request returns the request that the factory answers.
func (f *Factory) Request() *Request { return f.request }

// Close ends the use of the factory.
func (f *Factory) Close() { f.closed.Store(true) }
