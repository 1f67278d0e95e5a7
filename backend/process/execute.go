package process

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/bls"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
)

// errNotTaken is the error of an instance that accepts no batch now.
var errNotTaken = errors.New("instance takes no batch")

// Execute implements backend.Instance. It panics only before the batch is in flight in a life. From
// then on the life, or its end, answers the batch.
func (in *Instance) Execute(b *backend.Batch) {
	begin := backend.Now()
	err := in.handOver(b, begin)
	if err == nil {
		return
	}
	if errors.Is(err, errNotTaken) {
		in.apart(func() { b.Done(b, backend.Report{Refused: true}) })
		return
	}
	// Done may submit the next batch, which may fail as well, and so on for every waiting batch.
	// Each gets its own goroutine so that the stack does not grow.
	panics.Go(in.log, panics.Request, func() { in.fail(b, begin, err) }, nil)
}

// fail answers a batch that could not be submitted.
func (in *Instance) fail(b *backend.Batch, begin int64, err error) {
	now := backend.Now()
	in.apart(func() {
		b.Done(b, backend.Report{Start: begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err, GPU: in.gpu})
	})
	for _, task := range b.Tasks {
		in.apart(func() { task.Send(infer.ErrorResponse(err)) })
	}
}

// handOver numbers a batch and publishes its frame. An *infer.Error means that the batch cannot be
// sent. The end of a life is no error: it answers its batches itself.
func (in *Instance) handOver(b *backend.Batch, begin int64) error {
	l := in.current.Load()
	if l == nil {
		return errNotTaken
	}
	// Batches are numbered and published in the same order. Nothing that holds this lock waits for
	// the channel's receive lock, under which Execute may be called. The end of the life waits for
	// the lock, and enter takes nothing after that.
	l.encoder.Lock()
	defer l.encoder.Unlock()
	entered, ahead, err := l.enter(b, begin, in.name)
	if err != nil {
		return err
	}
	number := entered.number

	var position uint64
	var at int64
	err = panics.Run(in.log, panics.Request, func() (err error) {
		if !ahead && l.executeLimit > 0 {
			l.limit()
		}
		l.bls.Execute(b)
		position, at, err = l.send(b, &entered, ahead)
		return err
	})
	if err != nil {
		var panicked *panics.Error
		if errors.As(err, &panicked) { // nothing was published
			err = infer.AsError(err)
		}
	}
	return l.sent(number, position, at, err)
}

// aheadBelow is the average duration of executions below which the instance accepts a batch ahead.
// A batch that waits behind a longer execution could have gone to another instance.
const aheadBelow = 200 * time.Microsecond

// Ahead implements backend.Pipeliner. Until the stub has reported the fate of a withdrawn batch, it
// gets no other batch ahead: it is in a long execution, and the next batch could not be withdrawn.
func (in *Instance) Ahead() bool {
	if in.await.average.Load() >= int64(aheadBelow) {
		return false
	}
	l := in.current.Load()
	return l != nil && l.roomAhead()
}

// Withdraw implements backend.Pipeliner.
func (in *Instance) Withdraw() {
	l := in.current.Load()
	if l == nil {
		return
	}
	if last, certain := l.withdraw(); certain {
		// This must come before Lost, which could be another life's: end waits for withdrawing.
		defer l.withdrawing.Done()
		last.batch.Done(last.batch, backend.Report{Refused: true, Withdrawn: true})
	}
}

// send encodes and publishes the frame of a batch; the caller holds the encoder's lock. After an
// error or a panic nothing is lent and nothing was published.
func (l *life) send(b *backend.Batch, entered *batchInFlight, ahead bool) (position uint64, at int64, err error) {
	var few [8]*infer.Request
	var fewHandles [8]uint64
	requests, handles := few[:0], fewHandles[:0]
	for i, task := range b.Tasks {
		requests, handles = append(requests, task.Request), append(handles, entered.handleOf(i)) // bound: the batch
	}
	number := entered.number
	return l.encoder.Execute(number, requests, handles, ahead, &l.encoded, func(lent *shm.Group) { l.lends(number, lent) })
}

// Cancel implements backend.Canceller.
func (in *Instance) Cancel(task *backend.Task) {
	l := in.current.Load()
	if l == nil {
		return
	}
	handle, inside, abandoned := l.cancelled(task)
	if inside {
		l.tell(handle)
	}
	if abandoned {
		l.bls.CancelBatch(handle >> 32)
	}
}

// awaitState learns how long responses take, to decide whether spinning for the next one pays off.
// Races between updates only lose a sample.
type awaitState struct {
	// average is the moving average (1/8) of ns from submitting a batch until its response was
	// published. It leaves out this side's own wake-up.
	average atomic.Int64
	// think is the same average of the time before the stub's next frame while that depends on the
	// stub alone. It leaves out the time in which the stub waits for other models.
	think atomic.Int64
	// skip counts the waits to sleep through, because a yield took so long that another process
	// needs the processor. penalty is the next such number; clean counts the spins since.
	skip    atomic.Int32
	penalty atomic.Int32
	clean   atomic.Int32
}

// Limits of spinning; see docs/protocol.md.
const (
	slowYield    = 200 * time.Microsecond
	firstPenalty = 4
	lastPenalty  = 1024
	cleanSpins   = 64
)

// observe adds a sample of a batch's response time, and thought one of a frame.
func (a *awaitState) observe(wait int64) { learn(&a.average, wait) }
func (a *awaitState) thought(wait int64) { learn(&a.think, wait) }

func learn(average *atomic.Int64, wait int64) {
	// A single long wait, such as a restart, must not disable spinning for long.
	wait = min(max(wait, 0), int64(time.Millisecond))
	old := average.Load()
	average.Store(old + (wait-old)/8)
}

func (a *awaitState) worthwhile(budget time.Duration) bool {
	if budget <= 0 || a.think.Load() > int64(budget) {
		return false
	}
	if a.skip.Load() > 0 {
		a.skip.Add(-1)
		return false
	}
	return true
}

func (a *awaitState) spun(longest time.Duration) {
	if longest > slowYield {
		next := min(max(a.penalty.Load()*2, firstPenalty), lastPenalty)
		a.penalty.Store(next)
		a.skip.Store(next)
		a.clean.Store(0)
		return
	}
	if a.clean.Add(1) >= cleanSpins {
		a.clean.Store(0)
		a.penalty.Store(a.penalty.Load() / 2)
	}
}

// Await implements backend.Awaiter.
func (in *Instance) Await(done <-chan struct{}) {
	l := in.current.Load()
	budget := in.model.settings.Spin
	if l == nil || !in.await.worthwhile(budget) {
		return
	}
	f := bls.Follower{Of: l.bls}
	longest, err := l.channel.Spin(budget, done, l.handle, f.Look)
	f.Leave()
	in.await.spun(longest)
	if err != nil {
		l.fail(err)
	}
}

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
		responses, spare, kept, l.response.Shapes = one.list[:], &one.response, &one.kept, one.shape[:0]
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
		failure = l.quota.heap.StubError(infer.Internal, body.Text)
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
// outputs, and l.response.Shapes for its shapes; spare may be nil.
func (l *life) readResponses(body *ipc.ExecutedBody, f *ipc.Frame, of *batchInFlight, responses []*infer.Response, spare *infer.Response, kept *frames.Kept) (rescheduled map[uint32]bool, failed []int, err error) {
	r := &l.response
	for {
		ok, err := body.NextResponse(r)
		if err != nil || !ok {
			return rescheduled, failed, err
		}
		index, ok := of.indexOf(r.Handle)
		if !ok {
			return nil, nil, ipc.Broken("handle", "response to request %#x, which is not in flight", r.Handle)
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
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, but the withdrawn batch %d must be skipped first", number, asked.number)
	}
	if f.count == 0 || number != f.current[0].number || number > f.encoded.Load() {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, but %d batches are in the process, the first of them %d", number, f.count, f.current[0].number)
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
