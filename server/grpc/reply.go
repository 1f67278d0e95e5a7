package grpc

import (
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// What a reply takes on the heap besides its bytes: the response, its place in the
// queue and its origin; and each output and parameter.
const (
	replyCost  = 1 << 10
	outputCost = 256
)

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
	if err := classify(r.response, o.classes, o.target.Info()); err != nil {
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

// streams has the streams of a front end, whose replies are on one account.
type streams struct {
	account *memory.Account

	mu     sync.Mutex
	queues map[*queue]struct{}
}

func (w *streams) enter(q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues == nil {
		w.queues = make(map[*queue]struct{})
	}
	w.queues[q] = struct{}{}
}

func (w *streams) leave(q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queues, q)
}

// relieve makes room for a reply of one stream: it ends the stream that is charged
// most, of those that are left unread if there are any. The caller holds no queue's
// lock.
func (w *streams) relieve(own *queue) {
	w.mu.Lock()
	worst, most, left := own, int64(0), false
	for q := range w.queues {
		if cost, unread := q.burden(); cost > 0 && (unread && !left || unread == left && cost > most) {
			worst, most, left = q, cost, unread
		}
	}
	w.mu.Unlock()
	if left {
		worst.fail(errStalled)
	} else {
		worst.fail(errFull)
	}
}
