package frames

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Encoder encodes and sends the frames to one life of a stub. The caller holds its lock to set
// fields, and for Execute and Response.Send, which number loans and names.
type Encoder struct {
	sync.Mutex

	// Set before the first Execute.
	Names        *Names             // of INITIALIZE, then all that the stub knows
	Mapped       Mapped             // nil: no region is mapped
	Announced    *cudaipc.Announced // device memory for responses to BLS requests; nil: none
	TakesDevices bool               // the model accepts inputs on devices
	PutsThere    bool               // the stub writes outputs to devices
	// MayLend and MayKeep are called before the stub is lent n bytes in blocks, which it may keep
	// for long: MayLend for the inputs of a batch, which the stub may also have to copy, and MayKeep
	// for a response to a BLS request. If nil, nothing is refused.
	MayLend func(n int64) (copies bool, err error)
	MayKeep func(n int64) error

	channel *ipc.Channel
	pool    *shm.Pool
	loans   *shm.Loans

	// The batch that is being sent. The slices are reused; reset clears them. Guarded by the
	// lock.
	tensors  []ipc.Descriptor
	storages []storage // of tensors, in their order
	heads    []ipc.RequestHead
	outputs  []uint16
	wanted   []ipc.Place // of outputs
	traces   []byte      // texts of all requests, one after another
	size     int         // bytes of the body
	group    *shm.Group  // the blocks of tensors, nil without blocks
	lent     int64       // bytes of tensors in blocks
	copies   bool        // the stub copies them
}

// NewEncoder creates the encoder of a life, whose channel and loans the caller closes. Tensors that
// are too long for a frame travel in pool, the server's pool for requests.
func NewEncoder(channel *ipc.Channel, pool *shm.Pool, loans *shm.Loans) *Encoder {
	return &Encoder{channel: channel, pool: pool, loans: loans}
}

// Mapped returns the number by which the stub knows a client's region, if it has mapped it: for
// outputs if writable, otherwise for inputs.
type Mapped func(region *shm.Shared, writable bool) (number uint32, ok bool)

// keptTraces limits the buffer for traces that an encoder keeps for its next batch, in bytes.
const keptTraces = 64 << 10

// Execute sends the frame EXECUTE of a batch and returns its position and the time of its
// publication. handles are the requests' handles in order. The number is stored in written when the
// requests have been read completely, before the stub can see the frame. Before that, lends
// receives the blocks that the stub is lent, if any. After an error or a panic nothing is lent and
// nothing was sent; Refusal tells whether the channel still works.
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
	clear(e.storages)
	e.storages = e.storages[:0]
}

// undo ends the loans of plan when the frame was not sent.
func (e *Encoder) undo() {
	for i := range e.storages {
		e.storages[i].takeBack(e.loans)
	}
}

// plan chooses where each tensor's bytes travel, computes the length of the frame, and lends the
// blocks. After an error nothing is lent.
//
// bound: the requests of a batch, which are charged
func (e *Encoder) plan(requests []*infer.Request, handles []uint64) error {
	e.reset()
	e.size = ipc.ExecuteSize
	for i, r := range requests {
		if err := r.Check(); err != nil {
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
				if index, ok := e.Names.outputIndex(name); ok {
					e.outputs = append(e.outputs, index)
					h.Outputs++
				}
			}
			e.size += ipc.Align8(2 * int(h.Outputs))
		}
		if len(r.Places) > 0 {
			h.Places = e.wantedPlaces(r)
			e.size += ipc.PlaceSize * int(h.Places)
		}
		e.heads = append(e.heads, h)
		e.size += ipc.RequestSize + ipc.Align8(len(r.ID)+int(h.Parameters)+len(r.Correlation.Text)+int(h.Trace))
		for j := range r.Inputs {
			e.size += ipc.DescriptorSize + 8*len(r.Inputs[j].Shape)
		}
	}
	// After the heads of all requests come the tensor bytes that travel in the frame.
	for _, r := range requests {
		for j := range r.Inputs {
			if err := e.addInput(&r.Inputs[j]); err != nil {
				e.undo()
				return err
			}
		}
	}
	if e.lent == 0 || e.MayLend == nil {
		return nil
	}
	var err error
	if e.copies, err = e.MayLend(e.lent); err != nil {
		e.undo()
	}
	return err
}

// addInput chooses where one tensor's bytes travel.
func (e *Encoder) addInput(t *infer.Tensor) error {
	index, ok := e.Names.index[t.Name]
	if !ok {
		return infer.Errorf(infer.Internal, "input %q is not in the model's table of names", t.Name)
	}
	d := ipc.Descriptor{Name: index, Type: uint8(t.DataType), Shape: t.Shape, Element: element(t)}
	foreign := t.Foreign()
	at, size, ok := storage{}, e.size, false
	if foreign == nil {
		at, size, ok = inFrame(t.Data, e.size, ipc.MaxInlineBody)
	}
	e.size = size
	if !ok {
		var err error
		if foreign != nil {
			at, err = e.foreignStorage(t, foreign)
		} else {
			at, err = e.inRequests(t)
		}
		if err != nil {
			return err
		}
		if at.region == ipc.InRequests {
			e.lent += int64(len(t.Data))
			if e.group == nil {
				e.group = &shm.Group{}
			}
		}
		// Lent before the frame is written: a stub that reads the ticket may return it at once. The
		// loan is a reference of its own, so the request may be released, cancelled or answered
		// while the stub still reads.
		err = at.lend(e.loans, e.group)
		at.release()
		if err != nil {
			return err
		}
	}
	at.describe(&d)
	e.tensors, e.storages = append(e.tensors, d), append(e.storages, at) // bound: the inputs of a batch, which are charged; from here on undo knows the loan
	return nil
}

// element returns a descriptor's value for the common length of the elements.
func element(t *infer.Tensor) uint32 {
	if t.DataType == infer.Bytes {
		if s := infer.ScanBytes(t.Data, math.MaxInt); s.Common >= 0 {
			return uint32(s.Common) + 1
		}
	}
	return 0
}

// write writes the planned body into the ring or into a block: memory that the stub can already
// read, but does not look at before the frame is published. It writes every byte except padding,
// which the stub skips.
func (e *Encoder) write(body []byte, requests []*infer.Request) {
	b := body
	binary.LittleEndian.PutUint32(b[0:], uint32(len(requests)))
	flags := uint32(0)
	if e.copies {
		flags = ipc.ExecuteCopies
	}
	binary.LittleEndian.PutUint32(b[4:], flags)
	b = b[ipc.ExecuteSize:]
	tensors, storages, outputs, wanted, traces := e.tensors, e.storages, e.outputs, e.wanted, e.traces
	for i, r := range requests {
		h := &e.heads[i]
		b = h.Put(b)
		for range r.Inputs {
			b = tensors[0].Put(b)
			storages[0].fill(body)
			tensors, storages = tensors[1:], storages[1:]
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

// putParameters writes parameters, whose text has n bytes, to the beginning of b. The text may be
// six times as long as they are, so no other copy of it is made.
func putParameters(b []byte, n uint32, parameters []infer.Parameter) int {
	return len(infer.AppendParameters(b[:0:n], parameters)) // bound: n, for which b has room
}
