package frames

import (
	"bytes"
	"cmp"
	"fmt"
	"math"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Decoder decodes the frames of one life of a stub. The caller holds the channel's receive lock.
// Each tensor that a frame describes is located even if the frame is invalid: memory that the stub
// has lent returns to it only by being released.
type Decoder struct {
	// Set under the receive lock, before the frames that need them.
	Names     *Names             // of INITIALIZE, then all that the stub has sent
	Mapped    Mapped             // as for the Encoder
	Devices   *cudaipc.Lent      // device memory that the stub has lent; nil: none
	Announced *cudaipc.Announced // as for the Encoder

	channel *ipc.Channel
	loans   *shm.Loans
	heap    *Heap
	copies  copies
}

// NewDecoder creates the decoder of a life, whose channel and loans the caller closes. The heap
// charges for memory that outlives a frame; it may be nil.
func NewDecoder(channel *ipc.Channel, loans *shm.Loans, heap *Heap) *Decoder {
	return &Decoder{channel: channel, loans: loans, heap: heap, copies: copies{heap: heap}}
}

// AddName handles NAME: the next index stands for this name.
func (d *Decoder) AddName(index uint64, name []byte) error { return d.Names.add(index, name) }

// name returns the name of the tensor with the stub's index.
func (d *Decoder) name(index uint16) (string, error) {
	if int(index) >= len(d.Names.list) {
		return "", ipc.Broken("name", "name %d of %d", index, len(d.Names.list))
	}
	return d.Names.list[index], nil
}

// Return ends the loans whose tickets the stub returns, 8 bytes each. It is called after the rest
// of the frame has been read: an output that passes a loan on comes with that loan's ticket, and
// must have retained the block by then.
func (d *Decoder) Return(tickets []byte) error {
	for i := range len(tickets) / 8 {
		if err := d.loans.Return(shm.Ticket(ipc.Ticket(tickets, i))); err != nil {
			return ipc.Broken("ticket", "%v", err)
		}
	}
	return nil
}

// Copied returns the bytes of private copies that responses hold.
func (d *Decoder) Copied() int64 { return d.copies.used.Load() }

// Response turns a stub's response into one for a client of the named model. f is the frame that r
// was read from; places are those of the request. Outputs are stored in the capacity of
// into.Outputs if they fit. The response takes over one reference to kept, which charges for its
// memory. Keep has begun kept, except for a spilled frame: there it belongs to this response alone
// and begins here. A refusal becomes the error of the response.
func (d *Decoder) Response(r *ipc.ResponseBody, f *ipc.Frame, model string, places []infer.Place, into *infer.Response, kept *Kept) error {
	into.Held = kept
	if f.Spilled {
		d.heap.keep(kept, responseCost+tensorsCost(r.Outputs)+int64(min(len(r.Error), MaxErrorText)))
	}
	refusal := kept.refusal
	switch n := len(r.Outputs); {
	case n == 0:
		into.Outputs = nil
	case n > cap(into.Outputs) && refusal == nil:
		into.Outputs = make([]infer.Tensor, 0, n) // bound: charged
	}
	for i := range r.Outputs {
		described := &r.Outputs[i]
		t, own, err := d.tensor(described, f, crowded, places, kept)
		if err != nil {
			return err
		}
		refusal = cmp.Or(refusal, own)
		if kept.refusal != nil {
			t.Release()
			continue
		}
		into.Outputs = append(into.Outputs, t) // bound: there is room
		if !d.Names.isOutput(described.Name) {
			refusal = cmp.Or(refusal, infer.Errorf(infer.InvalidArg, "unexpected inference output '%s' for model '%s'", t.Name, model))
		}
	}
	switch {
	case r.Flags&ipc.FlagError != 0:
		code := infer.Code(min(r.Code, math.MaxUint8))
		if !code.Valid() {
			return ipc.Broken("frame", "code of an error is %d", r.Code)
		}
		if into.Err = kept.refusal; into.Err == nil {
			into.Err = d.heap.StubError(code, r.Error)
		}
	case len(r.Parameters) > 0:
		parameters, failure := d.heap.parameters(r.Parameters, kept)
		into.Parameters, into.Err = parameters, cmp.Or(failure, refusal)
	default:
		into.Err = refusal
	}
	if into.Err != nil {
		for i := range into.Outputs {
			into.Outputs[i].Release()
		}
		into.Outputs, into.Parameters = nil, nil
	}
	return nil
}

// Request fills in a BLS request from the body of INFER. kept charges for its memory and for
// elsewhere bytes of the caller; it begins here with one reference, which is the caller's. If kept
// has a Refusal, the request exceeds a limit or there is no memory for it, and nothing is filled
// in. Any other refusal is about a parameter or an input. In neither case is the stub at fault. The
// inputs always belong to the caller. Inputs in the arena are soon copied, so the stub may lend all
// of it.
func (d *Decoder) Request(body *ipc.InferBody, f *ipc.Frame, r *infer.Request, kept *Kept, elsewhere int64) (refusal *infer.Error, err error) {
	if kept.refusal = d.exceeds(body); kept.refusal == nil && !f.Spilled {
		elsewhere += int64(len(f.Body)) // which the inputs hold
	}
	strings := int64(len(body.Model) + len(body.ID) + len(body.CorrelText))
	d.heap.keep(kept, requestCost+elsewhere+strings+tensorsCost(body.Inputs)+8*int64(len(body.Outputs)))
	refusal = kept.refusal
	whole := refusal == nil
	if whole {
		r.Model = string(body.Model)                    // bound: budget.MaxName
		r.Version, r.ID = body.Version, string(body.ID) // bound: charged
		r.Flags, r.TimeoutMicros, r.Priority = body.Head.Flags, body.Head.Timeout, body.Head.Priority
		if body.Head.CorrelKind == ipc.CorrelationText {
			r.Correlation.Text = string(body.CorrelText) // bound: charged
		} else {
			r.Correlation.Number = body.Head.Correlation
		}
		if len(body.Inputs) > 0 {
			r.Inputs = make([]infer.Tensor, 0, len(body.Inputs)) // bound: charged
		}
		if len(body.Parameters) > 0 {
			var failure *infer.Error
			if r.Parameters, failure = d.heap.parameters(body.Parameters, kept); failure == nil {
				failure = exceedParameters(r.Parameters, d.heap.Limits().Parameters)
			}
			refusal = failure
		}
	}
	for i := range body.Inputs {
		t, own, err := d.tensor(&body.Inputs[i], f, 1, infer.Anywhere, kept)
		if err != nil {
			return refusal, err
		}
		refusal = cmp.Or(refusal, own)
		if whole {
			r.Inputs = append(r.Inputs, t) // bound: there is room
		} else {
			t.Release()
		}
	}
	if n := len(body.Outputs) / 2; n > 0 && whole {
		r.Outputs = make([]string, n) // bound: charged
		for i := range r.Outputs {
			if r.Outputs[i], err = d.name(body.OutputName(i)); err != nil {
				return refusal, err
			}
		}
	}
	return refusal, nil
}

// exceeds rejects a model's request that exceeds the limits of clients.
func (d *Decoder) exceeds(body *ipc.InferBody) *infer.Error {
	limits := d.heap.Limits()
	for _, field := range []struct {
		name  string
		found int
		most  int64
	}{
		{"model name", len(body.Model), budget.MaxName},
		{"request id", len(body.ID), limits.RequestID},
		{"correlation id", len(body.CorrelText), limits.RequestID},
		{"parameters", len(body.Parameters), mostEscaped * limits.Parameters},
	} {
		if int64(field.found) > field.most {
			return tooLong("the "+field.name, field.found, field.most)
		}
	}
	return nil
}

// mostEscaped is an upper bound of the JSON bytes that one byte of a string can become.
const mostEscaped = 8

// exceedParameters rejects parameters beyond the limits of clients.
func exceedParameters(list []infer.Parameter, most int64) *infer.Error {
	total := 0
	for i := range list {
		p := &list[i]
		if len(p.Name) > budget.MaxName {
			return tooLong("a parameter's name", len(p.Name), budget.MaxName)
		}
		total += len(p.Name) + len(p.String)
	}
	if int64(total) > most {
		return tooLong("the parameters", total, most)
	}
	return nil
}

func tooLong(field string, found int, most int64) *infer.Error {
	return infer.Errorf(infer.InvalidArg, "%s of an inference request has %d bytes, at most %d are allowed", field, found, most)
}

// InArena reports whether a tensor lies in the stub's arena. The stub can lend no more than its
// arena, and a model that waits for a BLS request returns no memory by itself.
func InArena(t *infer.Tensor) bool {
	_, ok := t.Memory.(*shm.Extent)
	return ok
}

// usedUp ends the error text of a stub that was granted no memory; also in pool.py and ipc/peer.
const usedUp = "is used up (--request-memory-byte-size)"

// MaxErrorText limits the error text of a model, in bytes. A longer text is cut.
const MaxErrorText = 1 << 20

// StubError turns a stub's error into an *infer.Error. For Triton a lack of memory is an internal
// error; here it is Unavailable, since it is temporary. The stub does not know which limit it has
// reached: if that is its model's share, the last clause is replaced. The caller holds the receive
// lock.
func (h *Heap) StubError(code infer.Code, text []byte) *infer.Error {
	if code != infer.Internal || !bytes.HasSuffix(text, []byte(usedUp)) {
		return &infer.Error{Code: code, Message: infer.Cut(text, MaxErrorText)}
	}
	clause := bytes.LastIndex(text, []byte(", and "))
	if h == nil || h.noArena == nil || clause < 0 {
		return &infer.Error{Code: infer.Unavailable, Message: infer.Cut(text, MaxErrorText)}
	}
	_ = h.refused(h.noArena)
	return &infer.Error{
		Code: infer.Unavailable, OutOfMemory: true,
		Message: fmt.Sprintf("%s, and %v (--model-max-memory-share)", infer.Cut(text[:clause], MaxErrorText), h.noArena),
	}
}
