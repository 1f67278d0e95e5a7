package bls

import (
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// responses are the responses to one BLS request, on their way to the model. The goroutine that
// delivers them or raises the demand sends them in order, as far as there is demand. The others
// wait with their window slots, so that the model that makes them has to wait.
//
// Three goroutines meet here: the one that delivers, mostly the reader of the other process's ring;
// the reader of this process's ring, with DEMAND, STOP_INFER and requests that make this one leave
// its window; and the end of the life, which forgets.
type responses struct {
	// mu is held while a response is sent, including a copy of up to copyAside bytes. So no
	// response can overtake another between kept and the ring.
	mu         sync.Mutex
	demand     int64 // responses that the model still demands
	kept       []*infer.Response
	first      [1]*infer.Response // initial memory of kept
	away       bool               // a separate goroutine sends one; others only append to kept
	forgotten  bool               // the model no longer wants them
	windowless bool               // they no longer count in their window
	// refused is set when there was no memory for a waiting response. Later responses are dropped,
	// and this error is the last response.
	refused error
}

// deliver implements infer.Sender.
func (q *request) deliver(r *infer.Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.windowless {
		releaseSlot(r)
	}
	if q.refused != nil {
		if r = q.insteadLocked(r); r == nil {
			return
		}
	}
	q.kept = append(q.kept, r) // bound: each was charged by who made it, and the process answers for it
	q.flushLocked()
	q.answerForLocked(r)
}

// answerForLocked charges a response that waits for the process to the process's own model, because
// other callers need the model that made it. The request fails beyond the share of the process's
// model.
func (q *request) answerForLocked(r *infer.Response) {
	last := len(q.kept) - 1
	if last < 0 || q.kept[last] != r || q.of.Holder == nil {
		return
	}
	err := frames.Attribute(r, q.of.Holder)
	if err == nil {
		return
	}
	q.refused = err
	q.kept[last] = nil
	q.kept = q.kept[:last]
	if r = q.insteadLocked(r); r != nil {
		q.kept = append(q.kept, r) // bound: there is room
	}
	q.cancel()
}

// insteadLocked drops a response. It returns the error that replaces the last one, otherwise nil.
func (q *request) insteadLocked(r *infer.Response) *infer.Response {
	final := r.Final
	r.Release()
	if !final {
		return nil
	}
	return infer.ErrorResponse(q.refused)
}

// grant raises the demand.
func (q *request) grant(n uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.demand += int64(n)
	q.flushLocked()
}

// forget drops all present and future responses.
func (q *request) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgotten = true
	q.flushLocked()
}

// flushLocked sends the kept responses as far as demand allows. The request ends with its last
// response, sent or dropped.
func (q *request) flushLocked() {
	for len(q.kept) > 0 && !q.away {
		r := q.kept[0]
		last := r.Final // read before the response is released
		// Demand counts the responses that the model sees. The mere end of a stream takes none, or
		// the model would have to ask again to learn of it.
		if !q.forgotten && q.stream && !r.Empty {
			if q.demand <= 0 {
				return
			}
			q.demand--
		}
		q.kept[0] = nil
		q.kept = q.kept[1:]
		if q.forgotten {
			r.Release()
		} else if !q.sendLocked(r) {
			return
		}
		if last {
			q.ended()
		}
	}
}

// sendLocked sends a response; false if a separate goroutine sends it and the following ones.
func (q *request) sendLocked(r *infer.Response) bool {
	if !q.stream {
		if r.Empty && r.Err == nil {
			r.Release()
			r = infer.ErrorResponse(infer.Errorf(infer.Internal, "Unexpected empty response."))
		}
		// The model accepts one response. If the called model has just become decoupled, its
		// further responses are dropped.
		q.forgotten = !r.Final
	}
	if frames.ToCopy(q.of.Pool, r) > copyAside {
		// From here on nothing else is sent. mu is free, and further responses wait behind r.
		q.away = true
		if q.of.goAside(func() { q.sendAside(r) }, q.of.session.Fail) {
			return false
		}
		q.away = false // the life has ended
		r.Release()
		return true
	}
	q.send(r)
	return true
}

// sendAside sends a response without mu, and then the responses that have arrived meanwhile.
func (q *request) sendAside(r *infer.Response) {
	last := r.Final
	q.send(r)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = false
	if last {
		q.ended()
	}
	q.flushLocked()
}

// send sends a response and releases it.
func (q *request) send(r *infer.Response) {
	if !q.stream && !r.Final {
		one := *r
		one.Final = true
		one.Slot = nil
		if r.Slot != nil {
			r.Slot.Release()
		}
		r = &one
	}
	b := q.of
	err := panics.Run(b.Log, panics.Life, func() error { return b.respond(q.number, q.hint(), r) })
	b.informed.Store(backend.Now()) // from now on the server waits for the process
	if err != nil {
		b.session.Fail(err)
	}
}

// hint tells the caller whether its inputs on devices stay there, if it has sent any.
func (q *request) hint() uint32 {
	switch {
	case !q.asked:
		return 0
	case q.takes:
		return ipc.HintDevices
	}
	return ipc.HintHost
}
