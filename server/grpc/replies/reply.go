package replies

import (
	"context"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// What a reply takes on the heap besides its bytes: the response, its place in the
// queue and its origin; and each output and parameter.
const (
	replyCost  = 1 << 10
	outputCost = 256
)

// Origin is what is remembered of a request for its replies.
type Origin struct {
	Model, Version, ID string // version is the text of the request
	Target             models.Target
	Classes            []message.Classes
	Places             []message.Place // the caller's of Queue.Add, while it is called
	EmptyFinal         bool
	Trace              *trace.Trace // nil if the request is not traced
	waiting            int          // its responses in the queue, guarded by the queue
}

// Reply is a message for the client of a stream: a response, or what a
// request was refused with. A response that was settled is its message and its
// slot.
type Reply struct {
	Origin   *Origin
	Response *infer.Response
	Refusal  error
	Encoded  []byte
	places   []message.Place // where outputs go, with a reference to each, until they are written
	slot     infer.Memory
	bytes    int64 // what it counts for in the queue
	cost     int64 // what it is charged: what of it lies on the heap
}

// weigh says what the reply takes. Memory that a model or the pool has lent is
// charged by its owner.
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

// hold keeps what the response will be written to, beyond the end of its request.
func (r *Reply) hold() {
	if r.Response == nil {
		return
	}
	r.places = r.Origin.Places
	for i := range r.places {
		r.places[i].Slice.Retain()
	}
}

// put writes the outputs that are wanted in clients' regions there: as late as can be, since
// the next response of the request goes to the same place.
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

// settle makes the message that is sent, in memory of its own, and gives back what
// the response has been lent but its slot: the model goes on when the message has
// left.
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

// Message says what is sent. Of an error only the text is.
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
	// The charge of the reply has them (weigh).
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

// Failed says what is sent instead of a response or a refusal that cannot be.
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

// slotted reports whether the reply has a place in the window of its model's
// request, which says how many there may be.
func (r *Reply) slotted() bool {
	return r.slot != nil || r.Response != nil && r.Response.Slot != nil
}

// mayWait reports whether the goroutine that adds the reply may be kept waiting: not
// where its backend has counted it, and not with the last one of a request.
func (r *Reply) mayWait() bool {
	return r.Response == nil || r.Response.Slot == nil && !r.Response.Final
}

// Release gives up what the reply was lent. It is not sent then, or as its
// message alone.
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

// errorText is what is said of err where its code is lost. It is never
// empty: an empty text would pass for success.
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
