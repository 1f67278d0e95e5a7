package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// oneResponse is what the answer to a batch of one request mostly needs, in one piece.
type oneResponse struct {
	list     [1]*infer.Response
	response infer.Response
	kept     frames.Kept
	outputs  [1]infer.Tensor
	shape    [3]int64
}

// responsesOf has room for the answer to a batch of several requests.
type responsesOf struct {
	kept frames.Kept // of all responses
	few  [8]*infer.Response
}

// keptResponse is a response of a spilled frame.
type keptResponse struct {
	infer.Response
	kept frames.Kept
}

// executed answers a batch.
func (l *life) executed(f ipc.Frame) error {
	arrived := f.Seen
	if arrived == 0 {
		arrived = backend.Now()
	}
	body, err := ipc.ParseExecuted(f.Body)
	if err != nil {
		return err
	}
	if body.Skipped {
		return l.skipped(f.ID, &body, arrived)
	}
	in := l.in
	first, freed, err := l.executing(f.ID)
	if err != nil {
		return err
	}
	// A batch that waited behind another began when that one was answered.
	begin := max(first.begin, freed)
	sent := max(first.sent, begin) // the answer may be faster than Execute's own bookkeeping
	batch := first.batch
	if !batch.Trial && !in.served.Load() {
		in.served.Store(true)
	}
	posted := l.channel.Posted()
	in.await.observe(posted - sent)
	in.await.thought(posted - max(sent, l.bls.Informed()))

	// Everything is read and checked before anything is handed up: a stub that
	// breaks the protocol in its last response has answered nothing.
	var responses []*infer.Response
	var spare *infer.Response
	var kept *frames.Kept
	if n := len(batch.Tasks); n == 1 {
		one := &oneResponse{}
		one.response.Outputs = one.outputs[:0]
		responses, spare, kept, l.response.Room = one.list[:], &one.response, &one.kept, one.shape[:0]
	} else {
		several := &responsesOf{}
		responses, kept = several.few[:min(n, len(several.few))], &several.kept
		if n > len(several.few) {
			responses = make([]*infer.Response, n) // bound: the requests of the batch
		}
	}
	l.decoder.Keep(kept, &f, len(batch.Tasks), len(body.Text))
	defer kept.Release()
	if f.Spilled {
		defer func() { l.response = ipc.ResponseBody{} }() // whose lists may be long
	}
	rescheduled, failed, err := l.readResponses(&body, &f, &first, responses, spare, kept)
	if err == nil {
		err = l.decoder.Return(body.Tickets)
	}
	if err != nil {
		release(responses)
		return err
	}
	var failure error
	if body.Failed {
		failure = frames.StubError(infer.Internal, body.Text)
		if refusal := kept.Refusal(); refusal != nil {
			failure = refusal
		}
	}
	report := backend.Report{Start: begin, ComputeStart: sent, ComputeEnd: max(arrived, sent), Err: failure, Failed: failed, Executed: true, GPU: l.in.gpu}
	_, itself := l.in.model.program.(Timekeeper)
	last := report.ComputeEnd
	if itself { // what it says is bounded by what is known
		from := sent
		if body.Reported {
			report.Start = between(sent, body.Begun, last)
			from = report.Start
		}
		report.ComputeStart = between(from, body.Called, last)
		report.ComputeEnd = between(report.ComputeStart, body.Returned, last)
	}

	credits, ok := l.conclude(&first, responses, rescheduled, &report, arrived)
	if !ok { // the life has been ended meanwhile
		release(responses)
		return nil
	}
	for _, s := range credits {
		l.apart(func() {
			if responses, bytes := s.close(); responses > 0 {
				s.credit(responses, bytes)
			}
		})
	}
	// Done first: the next batch is on its way to the stub while this one's
	// responses go up.
	end := arrived
	switch {
	case itself && body.Reported:
		end = between(report.ComputeEnd, body.Ended, last)
	case !itself || len(batch.Tasks) > 1 || !short(f.Body, responses[0]):
		end = backend.Now()
	}
	report.End = max(end, sent)
	l.apart(func() { batch.Done(batch, report) })
	for i, task := range batch.Tasks {
		if responses[i] != nil {
			if failure != nil && responses[i].Held == nil { // it has the text
				kept.Retain()
				responses[i].Held = kept
			}
			l.apart(func() { task.Send(responses[i]) })
		}
	}
	return nil
}

// short reports whether an answer was read in less than a microsecond, so that its end is when it came.
func short(body []byte, r *infer.Response) bool {
	const few = 4 << 10
	if len(body) > few || r == nil {
		return false
	}
	for i := range r.Outputs {
		if r.Outputs[i].Memory != r.Held { // it lies elsewhere, and may have been read or copied
			return false
		}
	}
	return true
}

// between is the time that a process has told, if it lies between two that are known, else the nearer of them.
func between(first int64, told uint64, last int64) int64 {
	return max(first, int64(min(told, uint64(last))))
}

// apart calls f, which goes up, so that a panic in it keeps nothing else of the batch
// from being done.
func (l *life) apart(f func()) { l.in.apart(f) }

func (in *Instance) apart(f func()) {
	_ = panics.Run(in.log, panics.Request, func() error { f(); return nil })
}

func release(responses []*infer.Response) {
	for _, a := range responses {
		if a != nil {
			a.Release()
		}
	}
}

// skipped takes account of a batch that the stub did not execute, because it was
// withdrawn. If that was not certain, it comes back only now.
func (l *life) skipped(number uint64, body *ipc.ExecutedBody, arrived int64) error {
	asked, first, fits := l.skipping(number)
	if !fits {
		return ipc.Broken("handle", "batch %d was skipped, which is not the next or was not withdrawn", number)
	}
	if err := l.decoder.Return(body.Tickets); err != nil {
		return err
	}
	if l.concludeSkipped(asked, arrived) {
		first.batch.Done(first.batch, backend.Report{Refused: true, Withdrawn: true})
	}
	return nil
}

// readResponses fills responses with the responses of an EXECUTED frame, and tells
// which requests are to be executed again, and which count as failed. The first response may be made in spare, with its outputs, and
// has its shapes in l.response.Room; nil: there is none.
func (l *life) readResponses(body *ipc.ExecutedBody, f *ipc.Frame, of *batchInFlight, responses []*infer.Response, spare *infer.Response, kept *frames.Kept) (rescheduled map[uint32]bool, failed []int, err error) {
	r := &l.response
	for {
		ok, err := body.NextResponse(r)
		if err != nil || !ok {
			return rescheduled, failed, err
		}
		index, ok := of.indexOf(r.Handle)
		if !ok {
			return nil, nil, ipc.Broken("handle", "response to request %#x, which is not inside", r.Handle)
		}
		if r.Flags == ipc.FlagFailure { // of a request that is answered in this frame, was before, or will be
			if len(r.Outputs) > 0 || body.Failed || len(failed) > 0 && index <= failed[len(failed)-1] {
				return nil, nil, ipc.Broken("frame", "request %d of the batch counts as failed, in a batch that failed, twice, out of order or with outputs", index)
			}
			failed = append(failed, index)
			continue
		}
		if s := of.stream(index); s != nil && s.ended {
			return nil, nil, ipc.Broken("handle", "response to request %d of the batch, which is final", index)
		}
		if responses[index] != nil || rescheduled[uint32(index)] {
			return nil, nil, ipc.Broken("handle", "second response to request %d of the batch", index)
		}
		if r.Flags&ipc.FlagPresent == 0 {
			if len(r.Outputs) > 0 {
				return nil, nil, ipc.Broken("handle", "request %d of the batch has %d outputs but no response", index, len(r.Outputs))
			}
			if r.Flags != ipc.FlagReschedule {
				continue
			}
			if body.Failed {
				return nil, nil, ipc.Broken("frame", "request %d of a batch that failed is to be executed again", index)
			}
			if rescheduled == nil {
				rescheduled = make(map[uint32]bool)
			}
			rescheduled[uint32(index)] = true
			continue
		}
		if r.Flags&ipc.FlagFinal == 0 {
			return nil, nil, ipc.Broken("handle", "response to request %d of the batch is not final", index)
		}
		response, own := spare, kept
		switch {
		case f.Spilled:
			one := &keptResponse{}
			response, own = &one.Response, &one.kept
		case response == nil:
			response = &infer.Response{}
		}
		spare = nil
		if own == kept {
			kept.Retain()
		}
		response.Final = true
		responses[index] = response
		if err := l.decoder.Response(r, f, l.in.model.env.Name, of.batch.Tasks[index].Request.Places, response, own); err != nil {
			return nil, nil, err
		}
	}
}
