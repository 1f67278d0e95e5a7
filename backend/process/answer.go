package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// handle acts on one frame of the stub. It runs with the channel's receive lock
// held. An error ends the life.
func (l *life) handle(f ipc.Frame) error {
	if !l.allows(f.Kind) {
		return ipc.Broken("kind", "%s came in phase %d", f.Kind, l.seen)
	}
	switch f.Kind {
	case ipc.Executed:
		return l.executed(f)
	case ipc.Response:
		return l.responded(f)
	case ipc.Released:
		if len(f.Body)%8 != 0 {
			return ipc.Broken("frame", "RELEASED has %d bytes, want a multiple of 8", len(f.Body))
		}
		return l.decoder.Return(f.Body)
	case ipc.Infer:
		return l.bls.Receive(f)
	case ipc.Demand, ipc.StopInfer:
		return l.bls.Steer(f)
	case ipc.ReadyAnswer:
		return l.isReady(f)
	case ipc.Name:
		return l.decoder.AddName(f.ID, f.Body)
	case ipc.Log:
		return l.logged(f)
	case ipc.Call:
		return l.calls.Receive(f)
	case ipc.Metric:
		return l.calls.Measure(f)
	}
	return l.handshake.receive(f)
}

// executed answers a batch.
func (l *life) executed(f ipc.Frame) error {
	arrived := backend.Now()
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
	if !batch.Trial && !in.answered.Load() {
		in.answered.Store(true)
	}
	posted := l.channel.Posted()
	in.await.observe(posted - sent)
	in.await.thought(posted - max(sent, l.bls.Informed()))

	// Everything is read and checked before anything is handed up: a stub that
	// breaks the protocol in its last response has answered nothing.
	answers := make([]*infer.Response, len(batch.Tasks))
	rescheduled, err := l.readResponses(&body, f.Body, &first, answers)
	if err == nil {
		err = l.decoder.Return(body.Tickets)
	}
	if err != nil {
		release(answers)
		return err
	}
	var failure error
	if body.Failed {
		failure = frames.StubError(infer.Internal, string(body.Text))
	}
	report := backend.Report{Start: begin, ComputeStart: sent, ComputeEnd: max(arrived, sent), Err: failure, Executed: true}

	credits, ok := l.conclude(&first, answers, rescheduled, &report, arrived)
	if !ok { // the life has been ended meanwhile
		release(answers)
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
	// answers go up.
	report.End = max(backend.Now(), sent)
	l.apart(func() { batch.Done(batch, report) })
	for i, task := range batch.Tasks {
		if answers[i] != nil {
			l.apart(func() { task.Send(answers[i]) })
		}
	}
	return nil
}

// executing returns the batch that the stub executes, and when the one before it was
// answered; an error if that is not the one with this number.
func (f *inFlight) executing(number uint64) (first inside, freed int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked := f.asked; asked.certain && number > asked.number {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where batch %d, which was withdrawn, is to be skipped first", number, asked.number)
	}
	if f.count == 0 || number != f.inside[0].number || number > f.encoded.Load() {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where %d are inside, the first of them %d", number, f.count, f.inside[0].number)
	}
	return f.inside[0], f.freed, nil
}

// conclude takes the first batch, which the caller answers; false if the end of
// the life does. It completes answers and report, and returns the streams that end
// with the batch and whose senders may wait.
func (f *inFlight) conclude(first *inside, answers []*infer.Response, rescheduled map[uint32]bool, report *backend.Report, arrived int64) (credits []*stream, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil, false
	}
	var ended []*stream
	for i, task := range first.batch.Tasks {
		s := first.stream(i)
		switch {
		case s != nil && s.ended:
		case answers[i] != nil:
		case report.Err != nil:
			answers[i] = infer.ErrorResponse(report.Err)
			if s != nil && f.decoupled {
				credits = append(credits, s) // its send may be waiting
			}
		case rescheduled[uint32(i)]:
			report.Rescheduled = append(report.Rescheduled, task)
		default:
			if s == nil {
				s = &stream{of: f, task: task, handle: first.handleOf(i)}
			}
			f.open.add(s)
			continue
		}
		if s != nil {
			ended = append(ended, s)
		}
	}
	f.answeredLocked(arrived)
	for _, s := range ended { // not before that: up to here, the end of the life may have to answer them
		s.ended = true
		s.close()
	}
	if f.asked.number == first.number { // too late
		f.asked = withdrawal{}
	}
	return credits, true
}

// apart calls f, which goes up, so that a panic in it keeps nothing else of the batch
// from being done.
func (l *life) apart(f func()) { l.in.apart(f) }

func (in *Instance) apart(f func()) {
	_ = boundary.Run(in.log, boundary.Request, func() error { f(); return nil })
}

func release(answers []*infer.Response) {
	for _, a := range answers {
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

// skipping returns what was withdrawn and the batch that is first, and whether the stub
// may skip the batch with this number now.
func (f *inFlight) skipping(number uint64) (asked withdrawal, first inside, fits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, first = f.asked, f.inside[0]
	fits = number != 0 && number == asked.number
	if asked.certain { // what was handed over before it must have been answered
		fits = fits && (f.count == 0 || first.number > number)
	} else {
		fits = fits && f.count > 0 && first.number == number
	}
	return asked, first, fits
}

// concludeSkipped takes a skipped batch, which the caller gives back, unless that
// has been done.
func (f *inFlight) concludeSkipped(asked withdrawal, arrived int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = withdrawal{}
	if asked.certain || f.count == 0 { // or the life has been ended meanwhile
		return false
	}
	f.answeredLocked(arrived)
	return true
}

// readResponses fills answers with the responses of an EXECUTED frame, and tells
// which requests are to be executed again.
func (l *life) readResponses(body *ipc.ExecutedBody, frame []byte, of *inside, answers []*infer.Response) (rescheduled map[uint32]bool, err error) {
	r := &l.response
	for {
		ok, err := body.NextResponse(r)
		if err != nil || !ok {
			return rescheduled, err
		}
		index, ok := of.indexOf(r.Handle)
		if !ok {
			return nil, ipc.Broken("handle", "response to request %#x, which is not inside", r.Handle)
		}
		if s := of.stream(index); s != nil && s.ended {
			return nil, ipc.Broken("handle", "response to request %d of the batch, which is final", index)
		}
		if answers[index] != nil || rescheduled[uint32(index)] {
			return nil, ipc.Broken("handle", "second response to request %d of the batch", index)
		}
		if r.Flags&ipc.FlagPresent == 0 {
			if len(r.Outputs) > 0 {
				return nil, ipc.Broken("handle", "request %d of the batch has %d outputs but no response", index, len(r.Outputs))
			}
			if r.Flags != ipc.FlagReschedule {
				continue
			}
			if body.Failed {
				return nil, ipc.Broken("frame", "request %d of a batch that failed is to be executed again", index)
			}
			if rescheduled == nil {
				rescheduled = make(map[uint32]bool)
			}
			rescheduled[uint32(index)] = true
			continue
		}
		if r.Flags&ipc.FlagFinal == 0 {
			return nil, ipc.Broken("handle", "response to request %d of the batch is not final", index)
		}
		answer := &infer.Response{Final: true}
		answers[index] = answer
		if err := l.decoder.Response(r, frame, l.in.model.env.Name, answer); err != nil {
			return nil, err
		}
	}
}
