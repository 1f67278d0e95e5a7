package grpc

import (
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// What a reply takes on the heap besides its bytes: the response, its place in the
// queue and its origin; and each output and parameter.
const (
	replyCost  = 1 << 10
	outputCost = 256
)

// origin is what is remembered of a request for its answers.
type origin struct {
	model, version, id string // version is the text of the request
	target             models.Target
	classes            []message.Classes
	emptyFinal         bool
	waiting            int // its responses in the queue, guarded by the queue
}

// reply is a message for the client of a stream: a response, or what a
// request was refused with. A response that was settled is its message and its
// slot.
type reply struct {
	origin   *origin
	response *infer.Response
	refusal  error
	encoded  []byte
	slot     infer.Memory
	bytes    int64 // what it counts for in the queue
	cost     int64 // what it is charged: what of it lies on the heap
}

// weigh says what the reply takes. Memory that a model or the pool has lent is
// charged by its owner.
func (r *reply) weigh() {
	r.cost = replyCost + int64(len(r.origin.id)+len(r.origin.model))
	lent := int64(0)
	if r.response != nil {
		for i := range r.response.Outputs {
			t := &r.response.Outputs[i]
			r.cost += outputCost + int64(8*len(t.Shape))
			if t.Memory != nil {
				lent += int64(len(t.Data))
			} else {
				r.cost += int64(len(t.Data))
			}
		}
		for i := range r.response.Parameters {
			p := &r.response.Parameters[i]
			r.cost += outputCost + int64(len(p.Name)+len(p.String))
		}
		if r.response.Err != nil {
			r.cost += int64(len(r.response.Err.Message))
		}
	}
	r.bytes = r.cost + lent
}

// settle makes the message that is sent, in memory of its own, and gives back what
// the response has been lent but its slot: the model goes on when the message has
// left.
func (r *reply) settle() {
	a := r.answer()
	b, err := a.Copied()
	if err != nil {
		a = r.failed(err)
		if b, err = a.Copied(); err != nil {
			return
		}
	}
	r.encoded, r.slot = b, r.response.Slot
	r.response.Slot = nil
	r.response.Release()
	r.response = nil
	r.cost = replyCost + int64(cap(b))
	r.bytes = r.cost
}

// answer says what is sent. Of an error only the text is.
func (r *reply) answer() message.Answer {
	o := r.origin
	switch {
	case r.refusal != nil:
		return message.Answer{ID: o.id, Stream: true, Err: errorText(r.refusal)}
	case r.response.Err != nil:
		return message.Answer{
			Model: o.model, Version: o.version, ID: o.id, Stream: true,
			Err: errorText(r.response.Err), HasFinal: true, Final: r.response.Final,
		}
	case r.response.Empty:
		return message.Answer{Model: o.model, Version: o.version, ID: o.id, Stream: true, HasFinal: true, Final: r.response.Final}
	}
	if err := message.Classify(r.response, o.classes, o.target.Info()); err != nil {
		return r.failed(err)
	}
	a := message.AnswerOf(r.response)
	a.Stream, a.HasFinal, a.Final = true, true, r.response.Final
	return a
}

// failed says what is sent instead of a response that cannot be.
func (r *reply) failed(err error) message.Answer {
	o := r.origin
	return message.Answer{
		Model: o.model, Version: o.version, ID: o.id, Stream: true,
		Err: errorText(err), HasFinal: true, Final: r.response.Final,
	}
}

// slotted reports whether the reply has a place in the window of its model's
// request, which says how many there may be.
func (r *reply) slotted() bool {
	return r.slot != nil || r.response != nil && r.response.Slot != nil
}

// mayWait reports whether the one who adds the reply may be kept waiting: not
// where its backend has counted it, and not with the last one of a request.
func (r *reply) mayWait() bool {
	return r.response == nil || r.response.Slot == nil && !r.response.Final
}

// release gives up what the reply was lent. It is not sent then, or as its
// message alone.
func (r *reply) release() {
	if r.response != nil {
		r.response.Release()
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
