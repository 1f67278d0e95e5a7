package plugin

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/nereid-serving/nereid/panics"
)

// mostDemand is the maximum number of responses of a stream in flight; more are requested when half
// of them have been taken.
const mostDemand = 32

// inferences are the author's requests to other models, until their last response.
type inferences struct {
	count atomic.Int32 // of all

	mu     sync.Mutex
	last   uint64
	all    map[uint64]*inference
	parsed ipc.ResponseBody // of the goroutine that reads
}

// inference is one of them.
type inference struct {
	session *session
	number  uint64
	model   string
	version int64
	id      string
	stream  bool
	send    infer.Sender
	stop    func() bool  // takes back that the context's end is heard of
	taken   atomic.Int32 // responses released by the author and not yet replaced by DEMAND
}

// none reports whether there are no inferences.
func (i *inferences) none() bool { return i.count.Load() == 0 }

// begin sends a request. Afterwards the caller may reuse the tensors.
func (i *inferences) begin(ctx context.Context, s *session, r *infer.Request, stream bool, send infer.Sender) error {
	one := &inference{session: s, model: r.Model, version: r.Version, id: r.ID, stream: stream, send: send}
	i.mu.Lock()
	if i.all == nil {
		i.all = make(map[uint64]*inference)
	}
	i.last++
	one.number = i.last
	i.all[one.number] = one
	i.count.Add(1)
	i.mu.Unlock()
	// The response may arrive, and end the inference, before pack returns.
	stop := context.AfterFunc(ctx, panics.Guard(s.own, panics.Request, one.cancel, nil))
	i.mu.Lock()
	one.stop = stop
	i.mu.Unlock()
	if err := one.pack(r); err != nil {
		i.remove(one.number)
		stop()
		return infer.Errorf(infer.Internal, "%s", err.Error())
	}
	return nil
}

func (i *inferences) remove(number uint64) *inference {
	i.mu.Lock()
	defer i.mu.Unlock()
	one := i.all[number]
	if one != nil {
		delete(i.all, number)
		i.count.Add(-1)
	}
	return one
}

func (i *inferences) get(number uint64) *inference {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[number]
}

// word sends DEMAND or STOP_INFER, with n as its body.
func (one *inference) word(kind ipc.Kind, n uint32) {
	_ = one.session.peer.Fill(kind, one.number, 8, func(body []byte) { ipc.PutWord(body, n) })
}

// cancel is called when the author's context ends. Responses are still expected.
func (one *inference) cancel() {
	if one.session.inferences.get(one.number) != nil {
		one.word(ipc.StopInfer, ipc.StopCancel)
	}
}

// Retain implements infer.Memory: an inference is the slot of each response of a stream.
func (one *inference) Retain() {}

// Release is called when the author has released a response of a stream. After enough of them, more
// are requested.
func (one *inference) Release() {
	if one.taken.Add(1)%(mostDemand/2) == 0 && one.session.inferences.get(one.number) != nil {
		one.word(ipc.Demand, mostDemand/2)
	}
}

// arrived handles an INFER_RESPONSE, in the goroutine that reads.
func (i *inferences) arrived(s *session, m peer.Message) error {
	err := m.Lost
	if err == nil {
		err = detail(ipc.ParseInferResponse(m.Body, &i.parsed))
	} else {
		i.parsed.Outputs = i.parsed.Outputs[:0]
	}
	r := &infer.Response{}
	for k := range i.parsed.Outputs {
		tensor, loan, wrong := s.tensor(&i.parsed.Outputs[k], m.Body)
		if wrong != nil {
			if loan != nil {
				loan.Release()
			}
			if err == nil {
				err = wrong
			}
			continue
		}
		r.Outputs = append(r.Outputs, tensor)
	}
	p := &i.parsed
	if err != nil {
		// The response becomes an error, and the last one, because no more are needed.
		r.Release()
		one := i.remove(m.ID)
		if one != nil {
			one.word(ipc.StopInfer, ipc.StopForget)
			one.end(infer.ErrorResponse(infer.Errorf(infer.Internal, "the server's answer is not understood: %v", err)))
		}
		return err
	}
	r.Final = p.Flags&ipc.FlagFinal != 0
	var one *inference
	if r.Final {
		one = i.remove(m.ID)
	} else {
		one = i.get(m.ID)
	}
	if one == nil { // forgotten; its loans go back
		r.Release()
		return nil
	}
	r.Model, r.Version, r.ID = one.model, p.Version, one.id
	switch {
	case p.Flags&ipc.FlagError != 0:
		code := infer.Code(p.Code)
		if !code.Valid() {
			code = infer.Internal
		}
		r.Err = infer.Errorf(code, "%s", p.Error)
	case p.Flags&ipc.FlagPresent == 0:
		r.Empty = true
	default:
		var wrong error
		if r.Parameters, wrong = infer.ParseParameters(p.Parameters); wrong != nil {
			s.logs.complain(0, "parameters of a response cannot be read: "+wrong.Error())
		}
	}
	if one.stream && !r.Empty {
		r.Slot = one
	}
	one.end(r)
	return nil
}

// end passes a response to the author. With the last one, the context is not watched any more.
func (one *inference) end(r *infer.Response) {
	if r.Final {
		i := &one.session.inferences
		i.mu.Lock()
		stop := one.stop
		i.mu.Unlock()
		if stop != nil {
			stop()
		}
	}
	one.send(r)
}

// pack encodes the INFER frame and sends it.
func (one *inference) pack(r *infer.Request) error {
	s := one.session
	a := newResponses()
	defer a.free()
	head := ipc.RequestHead{Correlation: r.Correlation.Number, Timeout: r.TimeoutMicros, Flags: r.Flags, Priority: r.Priority,
		Inputs: uint16(len(r.Inputs)), Outputs: ipc.AllOutputs}
	size := ipc.RequestSize
	for k := range r.Inputs {
		if err := a.addTensor(s, &r.Inputs[k]); err != nil {
			a.retract(s, 0)
			return err
		}
		size += a.tensors[k].Size()
	}
	var wanted []uint16
	if len(r.Outputs) > 0 {
		for _, name := range r.Outputs {
			index, err := s.names.index(name)
			if err != nil {
				a.retract(s, 0)
				return err
			}
			wanted = append(wanted, index)
		}
		head.Outputs = uint16(len(wanted))
		size += ipc.Align8(2 * len(wanted))
	}
	batch, trace := origin(r)
	parameters := infer.AppendParameters(nil, r.Parameters)
	if r.Correlation.Text != "" {
		head.CorrelKind = ipc.CorrelationText
	}
	head.ID, head.Parameters, head.CorrelText, head.Trace = uint32(len(r.ID)), uint32(len(parameters)), uint32(len(r.Correlation.Text)), uint32(len(trace))
	size += ipc.Align8(len(r.ID) + len(parameters) + len(r.Correlation.Text) + len(trace))
	begin := ipc.InferHead{Batch: batch, Version: r.Version, Demand: mostDemand, Model: uint32(len(r.Model)), Memory: ipc.PreferCPU}
	if one.stream {
		begin.Flags |= ipc.InferStream
	}
	if batch != 0 && r.Caller.Holding {
		begin.Flags |= ipc.InferHolding
	}
	prefix := ipc.InferSize + ipc.Align8(len(r.Model))
	a.head = size
	return a.publish(s, 0, ipc.Infer, one.number, prefix, func(body []byte) {
		copy(begin.Put(body), r.Model)
		b, _ := put(a.tensors, head.Put(body[prefix:]), body, ipc.AlignInline(prefix+size))
		for k, index := range wanted {
			b[2*k], b[2*k+1] = byte(index), byte(index>>8)
		}
		b = b[ipc.Align8(2*len(wanted)):]
		copy(b, strings.Join([]string{r.ID, string(parameters), r.Correlation.Text, trace}, ""))
	})
}

// origin returns the number of the batch on whose behalf a request is made, or 0 if unknown, and
// the trace that the request belongs to.
func origin(r *infer.Request) (batch uint64, trace string) {
	if r.Caller == nil || len(r.Caller.Requests) == 0 {
		return 0, ""
	}
	first := r.Caller.Requests[0]
	if first.Caller == nil {
		return 0, ""
	}
	e, ok := first.Caller.Backend.(*execution)
	if !ok {
		return 0, ""
	}
	return e.number, traceOf(first)
}

// traceOf returns the trace of a request in EXECUTE, or "".
func traceOf(r *infer.Request) string {
	if r.Caller == nil {
		return ""
	}
	if e, ok := r.Caller.Backend.(*execution); ok {
		for i := range e.tasks {
			if &e.tasks[i].request == r {
				return e.tasks[i].trace
			}
		}
	}
	return ""
}
