package replies

import (
	"context"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

const (
	// replyCost is the heap memory of a reply besides its bytes: response, queue entry, origin.
	replyCost = 1 << 10
	// outputCost is the heap memory of an output or parameter besides its bytes.
	outputCost = 256
)

// Origin keeps the data of a request that its replies need.
type Origin struct {
	Model, Version, ID string // Version is the text of the request
	Target             models.Target
	Classes            []message.Classes
	Places             []message.RegionOutput // owned by the caller of Queue.Add
	EmptyFinal         bool
	Trace              *trace.Trace // nil if the request is not traced
	waiting            int          // its queued responses, guarded by the queue
}

// Reply is a message for the client of a stream: a response, or the error that has rejected a
// request. Settling replaces a response by its encoded message and its slot.
type Reply struct {
	Origin   *Origin
	Response *infer.Response
	Refusal  error
	Encoded  []byte
	places   []message.RegionOutput // destinations of outputs, with a reference to each, until written
	slot     infer.Memory
	bytes    int64 // size that counts towards Limits.Bytes
	cost     int64 // charge: the part on the heap
}

// weigh sets bytes and cost. Memory that a model or the pool has lent is charged to its owner.
func (r *Reply) weigh() {
	r.cost = replyCost + int64(len(r.Origin.ID)+len(r.Origin.Model))
	lent := int64(0)
	if r.Response != nil {
		for i := range r.Response.Outputs {
			t := &r.Response.Outputs[i]
			r.cost += outputCost + int64(len(t.Name)+8*len(t.Shape))
			if t.Memory != nil {
				lent += int64(len(t.Data))
			} else {
				r.cost += int64(len(t.Data))
			}
		}
		for i := range r.Response.Parameters {
			p := &r.Response.Parameters[i]
			r.cost += outputCost + int64(len(p.Name)+len(p.String))
		}
		if len(r.Origin.Classes) > 0 {
			r.cost += message.ClassesCost(r.Response, r.Origin.Classes, r.Origin.Target.Info())
		}
		if r.Response.Err != nil {
			r.cost += int64(len(r.Response.Err.Message))
		}
	}
	if r.Refusal != nil {
		r.cost += int64(len(errorText(r.Refusal)))
	}
	r.bytes = r.cost + lent
}

// hold keeps the destinations of the outputs open beyond the end of the request.
func (r *Reply) hold() {
	if r.Response == nil {
		return
	}
	r.places = r.Origin.Places
	for i := range r.places {
		r.places[i].Slice.Retain()
	}
}

// put writes outputs to clients' regions. It runs as late as possible, because the next response
// to the request uses the same ranges.
func (r *Reply) put(ctx context.Context) error {
	err := message.Put(ctx, r.Response, r.places)
	if err == nil {
		r.leavePlaces()
	}
	return err
}

func (r *Reply) leavePlaces() {
	for i := range r.places {
		r.places[i].Slice.Release()
	}
	r.places = nil
}

// settle encodes the reply into memory of its own and releases the response except for its slot,
// which the model gets back when the message has been sent.
func (r *Reply) settle() {
	a := r.Message(context.Background())
	b, err := a.Copied()
	if err != nil {
		a = r.Failed(err)
		if b, err = a.Copied(); err != nil {
			return
		}
	}
	r.Encoded, r.slot = b, r.Response.Slot
	r.Response.Slot = nil
	r.leavePlaces()
	r.Response.Release()
	r.Response = nil
	r.cost = replyCost + int64(cap(b))
	r.bytes = r.cost
}

// Message returns the message to send. An error is sent as text only.
func (r *Reply) Message(ctx context.Context) message.Reply {
	o := r.Origin
	switch {
	case r.Refusal != nil:
		return message.Reply{ID: o.ID, Stream: true, Err: errorText(r.Refusal)}
	case r.Response.Err != nil:
		return message.Reply{
			Model: o.Model, Version: o.Version, ID: o.ID, Stream: true,
			Err: errorText(r.Response.Err), HasFinal: true, Final: r.Response.Final,
		}
	case r.Response.Empty:
		return message.Reply{Model: o.Model, Version: o.Version, ID: o.ID, Stream: true, HasFinal: true, Final: r.Response.Final}
	}
	// weigh has charged the classes.
	err := message.Classify(nil, r.Response, o.Classes, o.Target.Info())
	if err == nil {
		err = r.put(ctx)
	}
	if err != nil {
		return r.Failed(err)
	}
	a := message.ReplyOf(r.Response)
	a.Stream, a.HasFinal, a.Final = true, true, r.Response.Final
	return a
}

// Failed returns the message to send for err, instead of a reply that cannot be encoded.
func (r *Reply) Failed(err error) message.Reply {
	o := r.Origin
	if r.Response == nil {
		return message.Reply{ID: o.ID, Stream: true, Err: errorText(err)}
	}
	return message.Reply{
		Model: o.Model, Version: o.Version, ID: o.ID, Stream: true,
		Err: errorText(err), HasFinal: true, Final: r.Response.Final,
	}
}

// slotted reports whether the reply has a slot in the window of its request, which bounds the
// number of unreleased responses.
func (r *Reply) slotted() bool {
	return r.slot != nil || r.Response != nil && r.Response.Slot != nil
}

// mayWait reports whether the goroutine that adds the reply may be blocked. It may not if the reply
// has a slot or is the last one of its request.
func (r *Reply) mayWait() bool {
	return r.Response == nil || r.Response.Slot == nil && !r.Response.Final
}

// Release releases the response, its slot and its destinations. An encoded message can still be
// sent.
func (r *Reply) Release() {
	r.leavePlaces()
	if r.Response != nil {
		r.Response.Release()
	}
	if r.slot != nil {
		r.slot.Release()
		r.slot = nil
	}
}

// errorText returns the text of err for a message without a status code. It is never empty: an
// empty text would mean success.
func errorText(err error) string {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return s.Message()
	}
	e := infer.AsError(err)
	if e.Message != "" {
		return e.Message
	}
	return e.Code.String()
}
