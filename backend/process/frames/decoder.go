package frames

import (
	"cmp"
	"math"
	"strings"

	"github.com/nereid-serving/nereid/backend/process/ondevice"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/shm"
)

// Decoder reads what the frames of one life of a stub hold. The caller holds the
// channel's receive lock. Whatever becomes of a frame, each tensor that it describes is
// located: what the stub has lent goes back to it only by being released.
type Decoder struct {
	channel   *ipc.Channel
	loans     *shm.Loans
	names     *Names // that the stub has told; guarded by the receive lock
	copies    copies
	mapped    Mapped
	devices   *ondevice.Lent
	announced *ondevice.Announced
}

// NewDecoder makes the decoder of a life, whose channel and loans the caller closes. The
// account is charged for private copies, unless it is nil.
func NewDecoder(channel *ipc.Channel, loans *shm.Loans, account *memory.Account) *Decoder {
	return &Decoder{channel: channel, loans: loans, copies: copies{account: account}}
}

// SetNames says which names INITIALIZE tells the stub.
func (d *Decoder) SetNames(names *Names) { d.names = names }

// SetMapped says what the stub has mapped, as of the Encoder.
func (d *Decoder) SetMapped(mapped Mapped) { d.mapped = mapped }

// SetDevices says what the stub has lent of devices' memory. Without it a descriptor of that
// kind is not understood.
func (d *Decoder) SetDevices(lent *ondevice.Lent) { d.devices = lent }

// SetAnnounced says what the stub knows of devices' memory, as of the Encoder. Without it the stub
// writes nothing there.
func (d *Decoder) SetAnnounced(announced *ondevice.Announced) { d.announced = announced }

// Names returns the names by which the stub calls tensors.
func (d *Decoder) Names() *Names { return d.names }

// AddName acts on a NAME: the next index is that of this name.
func (d *Decoder) AddName(index uint64, name []byte) error { return d.names.add(index, name) }

// name returns the name of the tensor that the stub calls by an index.
func (d *Decoder) name(index uint16) (string, error) {
	if int(index) >= len(d.names.list) {
		return "", ipc.Broken("name", "name %d of %d", index, len(d.names.list))
	}
	return d.names.list[index], nil
}

// Return ends the loans whose tickets the stub gives back, 8 bytes each. It is called when
// all else of the frame has been read: an output that passes a loan on comes with the
// ticket of that loan, and has retained its block by then.
func (d *Decoder) Return(tickets []byte) error {
	for i := range len(tickets) / 8 {
		if err := d.loans.Return(shm.Ticket(ipc.Ticket(tickets, i))); err != nil {
			return ipc.Broken("ticket", "%v", err)
		}
	}
	return nil
}

// Copied returns how many bytes of private copies are held by responses.
func (d *Decoder) Copied() int64 { return d.copies.used.Load() }

// Response turns a response of the stub into one for a client of the named model. The
// frame is the body that r was read from; places are those of the request. Outputs are made in the
// capacity of into.Outputs, if they fit.
func (d *Decoder) Response(r *ipc.ResponseBody, frame []byte, model string, places []infer.Place, into *infer.Response) error {
	switch n := len(r.Outputs); {
	case n == 0:
		into.Outputs = nil
	case n > cap(into.Outputs):
		into.Outputs = make([]infer.Tensor, 0, n)
	}
	var refusal *infer.Error
	for i := range r.Outputs {
		described := &r.Outputs[i]
		t, own, err := d.tensor(described, frame, crowded, places)
		if err != nil {
			return err
		}
		refusal = cmp.Or(refusal, own)
		into.Outputs = append(into.Outputs, t)
		if !d.names.isOutput(described.Name) {
			refusal = cmp.Or(refusal, infer.Errorf(infer.InvalidArg, "unexpected inference output '%s' for model '%s'", t.Name, model))
		}
	}
	switch {
	case r.Flags&ipc.FlagError != 0:
		code := infer.Code(min(r.Code, math.MaxUint8))
		if !code.Valid() {
			return ipc.Broken("frame", "code of an error is %d", r.Code)
		}
		into.Err = StubError(code, string(r.Error))
	case len(r.Parameters) > 0:
		parameters, failure := ParseParameters(r.Parameters)
		into.Parameters, into.Err = parameters, cmp.Or(failure, refusal)
	default:
		into.Err = refusal
	}
	if into.Err != nil {
		into.Release()
		into.Outputs, into.Parameters = nil, nil
	}
	return nil
}

// Request fills in a BLS request from the body of INFER, all but its parameters. The
// frame is the body that body was read from. A refusal means that the bytes of an input
// cannot be had now, but the stub has done nothing wrong. The inputs are the caller's in
// each case; it takes what lies in the arena out of it soon, so the stub may lend that up
// to the last byte.
func (d *Decoder) Request(body *ipc.InferBody, frame []byte, r *infer.Request) (refusal *infer.Error, err error) {
	r.Model, r.Version, r.ID = string(body.Model), body.Version, string(body.ID)
	r.Flags, r.TimeoutMicros, r.Priority = body.Head.Flags, body.Head.Timeout, body.Head.Priority
	if body.Head.CorrelKind == ipc.CorrelationText {
		r.Correlation.Text = string(body.CorrelText)
	} else {
		r.Correlation.Number = body.Head.Correlation
	}
	if len(body.Inputs) > 0 {
		r.Inputs = make([]infer.Tensor, 0, len(body.Inputs))
	}
	for i := range body.Inputs {
		t, own, err := d.tensor(&body.Inputs[i], frame, 1, infer.Anywhere)
		if err != nil {
			return refusal, err
		}
		if own != nil {
			refusal = own
		}
		r.Inputs = append(r.Inputs, t)
	}
	if n := len(body.Outputs) / 2; n > 0 {
		r.Outputs = make([]string, n)
		for i := range r.Outputs {
			if r.Outputs[i], err = d.name(body.OutputName(i)); err != nil {
				return refusal, err
			}
		}
	}
	return refusal, nil
}

// InArena reports whether a tensor lies where the stub has put it: it can lend no more than
// its arena, and a model that waits for a BLS request gives no memory back by itself.
func InArena(t *infer.Tensor) bool {
	_, ok := t.Memory.(*shm.Extent)
	return ok
}

// usedUp ends the text of an error of a stub that was granted no memory; it is in
// pool.py, too.
const usedUp = "is used up (--request-memory-byte-size)"

// StubError makes an error of what a stub says. Triton's code for a lack of memory is
// that of a fault; that there is none at the moment is Unavailable.
func StubError(code infer.Code, text string) *infer.Error {
	if code == infer.Internal && strings.HasSuffix(text, usedUp) {
		code = infer.Unavailable
	}
	return &infer.Error{Code: code, Message: text}
}
