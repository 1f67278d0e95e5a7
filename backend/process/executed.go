package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// oneResponse is the usual memory of the response to a batch of one request, in one allocation.
type oneResponse struct {
	list     [1]*infer.Response
	response infer.Response
	kept     frames.Kept
	outputs  [1]infer.Tensor
	shape    [3]int64
}

// responsesOf is the memory of the responses to a batch of several requests.
type responsesOf struct {
	kept frames.Kept // of all responses
	few  [8]*infer.Response
}

// keptResponse is a response of a spilled frame.
type keptResponse struct {
	infer.Response
	kept frames.Kept
}

// executed handles EXECUTED: it answers a batch.
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
	// A batch that waited behind another one began when that one was answered.
	begin := max(first.begin, freed)
	sent := max(first.sent, begin) // the response may be faster than Execute's own bookkeeping
	batch := first.batch
	if !batch.Trial && !in.served.Load() {
		in.served.Store(true)
	}
	posted := l.channel.Posted()
	in.await.observe(posted - sent)
	in.await.thought(posted - max(sent, l.bls.Informed()))

	// Everything is read and checked before anything is delivered: a stub that breaks the protocol
	// in its last response has answered nothing.
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
	last := report.ComputeEnd
	itself := l.in.model.program.Capabilities().ReportsTimes
	if itself { // the process's times are limited by the server's own
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
	// Done comes first, so that the next batch is on its way to the stub while this batch's
	// responses are delivered.
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
			if failure != nil && responses[i].Held == nil { // it refers to the text
				kept.Retain()
				responses[i].Held = kept
			}
			l.apart(func() { task.Send(responses[i]) })
		}
	}
	return nil
}

// short reports whether a response was read in less than a microsecond, so that its end is the time
// of its arrival.
func short(body []byte, r *infer.Response) bool {
	const few = 4 << 10
	if len(body) > few || r == nil {
		return false
	}
	for i := range r.Outputs {
		if r.Outputs[i].Memory != r.Held { // it is elsewhere and may have been read or copied
			return false
		}
	}
	return true
}

// between returns a time that a process has reported, limited to the range from first to last.
func between(first int64, told uint64, last int64) int64 {
	return max(first, int64(min(told, uint64(last))))
}

// apart calls f, which delivers something. A panic in it affects nothing else of the batch.
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

// skipped handles a withdrawn batch that the stub did not execute. If that was not certain before,
// the batch is given back only now.
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

// readResponses fills responses with the responses of an EXECUTED frame. It returns the requests to
// execute again, and the positions of the failed ones. The first response may use spare with its
// outputs, and l.response.Room for its shapes; spare may be nil.
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
		if r.Flags == ipc.FlagFailure { // of a request that is answered in this frame, before, or later
			if len(r.Outputs) > 0 || body.Failed || len(failed) > 0 && index <= failed[len(failed)-1] {
				return nil, nil, ipc.Broken("frame", "request %d of the batch counts as failed, in a batch that failed, twice, out of order or with outputs", index)
			}
			failed = append(failed, index) // bound: the batch
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
			rescheduled[uint32(index)] = true // bound: the batch
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

// executing returns the batch that the stub executes and when the one before it was answered. It
// fails if that batch has another number.
func (f *inFlight) executing(number uint64) (first batchInFlight, freed int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked := f.asked; asked.certain && number > asked.number {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where batch %d, which was withdrawn, is to be skipped first", number, asked.number)
	}
	if f.count == 0 || number != f.current[0].number || number > f.encoded.Load() {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where %d are inside, the first of them %d", number, f.count, f.current[0].number)
	}
	return f.current[0], f.freed, nil
}

// conclude removes the first batch, which the caller answers. It returns false if the end of the
// life answers the batch. It completes responses and report, and returns the streams that end with
// the batch and whose senders may be waiting.
func (f *inFlight) conclude(first *batchInFlight, responses []*infer.Response, rescheduled map[uint32]bool, report *backend.Report, arrived int64) (credits []*stream, ok bool) { // bound: the batch
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil, false
	}
	var ended []*stream // bound: the batch
	group := f.current[0].lent
	var left *lending // of requests that stay open
	for i, task := range first.batch.Tasks {
		s := first.stream(i)
		switch {
		case s != nil && s.ended:
		case responses[i] != nil:
			if s != nil {
				responses[i] = s.whole(responses[i])
			}
		case report.Err != nil:
			responses[i] = infer.ErrorResponse(report.Err)
			if s != nil && f.decoupled {
				credits = append(credits, s) // its sender may be waiting
			}
		case rescheduled[uint32(i)]:
			report.Rescheduled = append(report.Rescheduled, task) // bound: the batch
		default:
			if s == nil {
				s = newStream(f, task, first.handleOf(i))
			}
			if group != nil {
				if left == nil {
					left = &lending{group: group}
				}
				s.lent = left
				left.open++
			}
			f.open.add(s)
			continue
		}
		if s != nil {
			ended = append(ended, s)
		}
	}
	f.concludeLocked(arrived)
	if group != nil && left == nil {
		f.session.answered(group)
	}
	for _, s := range ended { // not earlier: until here the end of the life may have to answer them
		s.ended = true
		s.close()
	}
	if f.asked.number == first.number { // too late
		f.asked = withdrawal{}
	}
	return credits, true
}

// skipping returns the withdrawal and the first batch, and whether the stub may skip the batch with
// this number now.
func (f *inFlight) skipping(number uint64) (asked withdrawal, first batchInFlight, fits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, first = f.asked, f.current[0]
	fits = number != 0 && number == asked.number
	if asked.certain { // the batches submitted before it must have been answered
		fits = fits && (f.count == 0 || first.number > number)
	} else {
		fits = fits && f.count > 0 && first.number == number
	}
	return asked, first, fits
}

// concludeSkipped removes a skipped batch, which the caller gives back. It returns false if that
// has been done.
func (f *inFlight) concludeSkipped(asked withdrawal, arrived int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = withdrawal{}
	if asked.certain || f.count == 0 { // or the life has ended
		return false
	}
	f.concludeLocked(arrived)
	return true
}
