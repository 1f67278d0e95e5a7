package frames

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Encoder makes and sends the frames that go to one life of a stub. The caller holds one
// lock for SetNames, Execute and Response.Send, which number what they lend and name;
// everything else may be called by any goroutine.
type Encoder struct {
	channel      *ipc.Channel
	pool         *shm.Pool
	loans        *shm.Loans
	names        *Names // that the stub has been told; guarded by the caller's lock
	mapped       Mapped
	announced    *cudaipc.Announced // nil: the stub takes nothing on devices
	takesDevices bool               // its model takes inputs there; guarded by the caller's lock
	putsThere    bool               // the stub writes outputs there
	// mayLend and mayKeep bound the blocks that the stub keeps; see SetBounds.
	mayLend func(n int64) (copies bool, err error)
	mayKeep func(n int64) error

	// The batch that is being sent. The slices are kept from batch to batch, for their
	// memory; reset forgets what they held. Guarded by the caller's lock.
	tensors []ipc.Descriptor
	places  []place // of tensors, in their order
	heads   []ipc.RequestHead
	outputs []uint16
	wanted  []ipc.Place // of outputs
	traces  []byte      // texts of all requests, one after another
	size    int         // bytes of the body
	group   *shm.Group  // the blocks of tensors, nil without blocks
	lent    int64       // bytes of tensors in blocks
	copies  bool        // the stub copies them
}

// NewEncoder makes the encoder of a life, whose channel and loans the caller closes.
// Tensors travel in pool, the server's pool for requests, if they are too long for a
// frame.
func NewEncoder(channel *ipc.Channel, pool *shm.Pool, loans *shm.Loans) *Encoder {
	return &Encoder{channel: channel, pool: pool, loans: loans}
}

// SetNames says which names INITIALIZE tells the stub.
func (e *Encoder) SetNames(names *Names) { e.names = names }

// Mapped says by which number the stub knows a region of a client, if it has it mapped: for
// outputs if it is to be writable, else for inputs.
type Mapped func(region *shm.Shared, writable bool) (number uint32, ok bool)

// SetMapped says what the stub has mapped. It is called before the first Execute; without
// it no region is mapped.
func (e *Encoder) SetMapped(mapped Mapped) { e.mapped = mapped }

// SetDevices says what the stub knows of devices' memory: responses to its BLS requests may
// lie there.
func (e *Encoder) SetDevices(announced *cudaipc.Announced) { e.announced = announced }

// TakeDevices says that inputs may lie on devices, too.
func (e *Encoder) TakeDevices() { e.takesDevices = true }

// PlaceOnDevices says that the stub may be told of outputs that are wanted on devices. It is called before the
// first Execute.
func (e *Encoder) PlaceOnDevices() { e.putsThere = true }

// SetBounds sets the functions that are asked before the stub is lent n bytes in blocks, which it
// may keep longer than it needs them: mayLend for the inputs of a batch, which the stub may also
// have to copy, and mayKeep for a response to a BLS request. Without them nothing is refused.
func (e *Encoder) SetBounds(mayLend func(n int64) (copies bool, err error), mayKeep func(n int64) error) {
	e.mayLend, e.mayKeep = mayLend, mayKeep
}

// Names returns the names that the stub has been told.
func (e *Encoder) Names() *Names { return e.names }

// keptTraces bounds the buffer for traces that an encoder keeps for its next batch, in bytes.
const keptTraces = 64 << 10

// Execute sends the frame EXECUTE of a batch and returns its position, and when it was published. Handles are the
// requests' in order. The number is stored in written when everything has been read of
// the requests, before the stub can see the frame; before that lends is told of the blocks that the
// stub is lent, if there are some. After an error, or a panic, nothing is
// lent and nothing was sent; Refusal tells whether the channel is fine.
func (e *Encoder) Execute(number uint64, requests []*infer.Request, handles []uint64, ahead bool, written *atomic.Uint64, lends func(*shm.Group)) (position uint64, at int64, err error) {
	sent := false
	defer func() {
		if !sent {
			e.undo()
		}
		if cap(e.traces) > keptTraces {
			e.traces = nil
		}
	}()
	if err := e.plan(requests, handles); err != nil {
		return 0, 0, err
	}
	if e.group != nil {
		lends(e.group)
	}
	if e.size > ipc.MaxInlineBody {
		position, at, err = e.spill(ipc.Execute, number, ahead, e.size, func(body []byte) {
			e.write(body, requests)
			written.Store(number)
		})
	} else {
		position, at, err = e.channel.Fill(ipc.Execute, number, e.size, func(frame []byte) {
			e.write(frame[ipc.HeaderSize:], requests)
			if ahead {
				ipc.SetAhead(frame)
			}
			written.Store(number)
		})
	}
	sent = err == nil
	return position, at, err
}

func (e *Encoder) reset() {
	e.tensors, e.heads, e.outputs, e.traces = e.tensors[:0], e.heads[:0], e.outputs[:0], e.traces[:0]
	e.wanted, e.group, e.lent, e.copies = e.wanted[:0], nil, 0, false
	clear(e.places)
	e.places = e.places[:0]
}

// undo takes back what plan lent, when the frame was not sent.
func (e *Encoder) undo() {
	for i := range e.places {
		e.places[i].takeBack(e.loans)
	}
}

// plan decides where each tensor's bytes travel and how long the frame gets, and lends
// what lies in the pool. After an error nothing is lent.
//
// bound: the requests of a batch, which are charged
func (e *Encoder) plan(requests []*infer.Request, handles []uint64) error {
	e.reset()
	e.size = ipc.ExecuteSize
	for i, r := range requests {
		if err := checkRequest(r); err != nil {
			return err
		}
		h := ipc.RequestHead{
			Handle: handles[i], Correlation: r.Correlation.Number, Timeout: r.TimeoutMicros, Flags: r.Flags, Priority: r.Priority,
			Inputs: uint16(len(r.Inputs)), Outputs: ipc.AllOutputs, ID: uint32(len(r.ID)),
			Parameters: uint32(infer.ParametersSize(r.Parameters)), CorrelText: uint32(len(r.Correlation.Text)),
		}
		if r.Trace != nil {
			text := r.Trace.Text()
			e.traces, h.Trace = append(e.traces, text...), uint32(len(text))
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
			e.size += ipc.Align8(2 * int(h.Outputs))
		}
		if len(r.Places) > 0 {
			h.Places = e.placesOf(r)
			e.size += ipc.PlaceSize * int(h.Places)
		}
		e.heads = append(e.heads, h)
		e.size += ipc.RequestSize + ipc.Align8(len(r.ID)+int(h.Parameters)+len(r.Correlation.Text)+int(h.Trace))
		for j := range r.Inputs {
			e.size += ipc.DescriptorSize + 8*len(r.Inputs[j].Shape)
		}
	}
	// Behind the heads of all requests come the tensor bytes that travel in the frame.
	for _, r := range requests {
		for j := range r.Inputs {
			if err := e.place(&r.Inputs[j]); err != nil {
				e.undo()
				return err
			}
		}
	}
	if e.lent == 0 || e.mayLend == nil {
		return nil
	}
	var err error
	if e.copies, err = e.mayLend(e.lent); err != nil {
		e.undo()
	}
	return err
}

// place chooses where one tensor's bytes travel.
func (e *Encoder) place(t *infer.Tensor) error {
	index, ok := e.names.index[t.Name]
	if !ok {
		return infer.Errorf(infer.Internal, "input %q is not in the model's table of names", t.Name)
	}
	d := ipc.Descriptor{Name: index, Type: uint8(t.DataType), Shape: t.Shape, Element: element(t)}
	foreign := t.Foreign()
	p, size, ok := place{}, e.size, false
	if foreign == nil {
		p, size, ok = inFrame(t.Data, e.size, ipc.MaxInlineBody)
	}
	e.size = size
	if !ok {
		var err error
		if foreign != nil {
			p, err = e.placeForeign(t, foreign)
		} else {
			p, err = e.inRequests(t)
		}
		if err != nil {
			return err
		}
		if p.region == ipc.InRequests {
			e.lent += int64(len(t.Data))
			if e.group == nil {
				e.group = &shm.Group{}
			}
		}
		// Lent before the frame is written: a stub that reads the ticket may give it back at
		// once. The loan is a reference of its own, so that the request may be released,
		// cancelled or answered while the stub still reads.
		err = p.lend(e.loans, e.group)
		p.release()
		if err != nil {
			return err
		}
	}
	p.describe(&d)
	e.tensors, e.places = append(e.tensors, d), append(e.places, p) // bound: the inputs of a batch, which are charged; from here on undo knows the loan
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

// write writes the planned body, into the ring or into a block: memory that the stub can
// read already, but does not look at before the frame is published. Every byte is written
// but for padding, whose old bytes the stub passes over.
func (e *Encoder) write(body []byte, requests []*infer.Request) {
	b := body
	binary.LittleEndian.PutUint32(b[0:], uint32(len(requests)))
	flags := uint32(0)
	if e.copies {
		flags = ipc.ExecuteCopies
	}
	binary.LittleEndian.PutUint32(b[4:], flags)
	b = b[ipc.ExecuteSize:]
	tensors, places, outputs, wanted, traces := e.tensors, e.places, e.outputs, e.wanted, e.traces
	for i, r := range requests {
		h := &e.heads[i]
		b = h.Put(b)
		for range r.Inputs {
			b = tensors[0].Put(b)
			places[0].fill(body)
			tensors, places = tensors[1:], places[1:]
		}
		if h.Outputs != ipc.AllOutputs {
			n := int(h.Outputs)
			for k, index := range outputs[:n] {
				b[2*k], b[2*k+1] = byte(index), byte(index>>8)
			}
			outputs = outputs[n:]
			b = b[ipc.Align8(2*n):]
		}
		for range h.Places {
			b = wanted[0].Put(b)
			wanted = wanted[1:]
		}
		n := copy(b, r.ID)
		n += putParameters(b[n:], h.Parameters, r.Parameters)
		n += copy(b[n:], r.Correlation.Text)
		n += copy(b[n:], traces[:h.Trace])
		traces = traces[h.Trace:]
		b = b[ipc.Align8(n):]
	}
}

// putParameters writes parameters, whose text has n bytes, to the beginning of b. The text
// may be six times as long as they are, so it is made nowhere else.
func putParameters(b []byte, n uint32, parameters []infer.Parameter) int {
	return len(infer.AppendParameters(b[:0:n], parameters)) // bound: n, for which b has room
}
