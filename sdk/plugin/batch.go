package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// execution is one batch from the server.
type execution struct {
	session *session
	number  uint64
	batch   backend.Batch
	tasks   []task
	caller  infer.Caller // of requests that the author makes for it

	mu       sync.Mutex
	held     []held        // what EXECUTED will carry
	taken    bool          // EXECUTED is about to be sent, or waits for releases: later answers have their own frames
	settled  bool          // EXECUTED has been sent
	answered int64         // then: when it was published, by a clock that was read just before; 0: it was not
	waiter   chan struct{} // closed then; nil unless the next batch waits for it

	// Memory for a batch of one request.
	one  [1]task
	list [1]*backend.Task
	few  [1]held
}

// held is the last response to a request, which EXECUTED will carry.
type held struct {
	task     *task
	response *infer.Response
}

// task is one request of a batch.
type task struct {
	backend.Task
	execution *execution
	request   infer.Request
	context   requestContext
	trace     string // what INFER repeats
	few       [2]infer.Tensor
	shapes    [4]int64     // the first dimensions of the inputs
	loans     []*peer.Loan // of the inputs, held until EXECUTED is sent

	window heldSlots
}

// begin creates a batch from an EXECUTE frame. It returns nil if the frame is invalid and has been
// answered.
func (s *session) begin(m peer.Message) *execution {
	e := &execution{session: s, number: m.ID}
	s.peer.HoldTickets(true)
	if err := e.read(m); err != nil {
		e.letGo(0)
		s.refuse(m.ID, fmt.Sprintf("the server's message is not understood: %v", err))
		return nil
	}
	e.batch.Done = s.done
	e.caller.Backend = e
	return e
}

// read decodes a frame. Its loans are in tasks, even after an error.
func (e *execution) read(m peer.Message) error {
	if m.Lost != nil {
		return m.Lost
	}
	body, err := ipc.ParseExecute(m.Body)
	if err != nil {
		return detail(err)
	}
	n := int(body.Requests)
	if n == 0 {
		return errors.New("no request is in it")
	}
	if n == 1 {
		e.tasks, e.batch.Tasks = e.one[:1], e.list[:1]
	} else {
		if n > len(m.Body)/ipc.RequestSize {
			return fmt.Errorf("%d requests are in %d bytes", n, len(m.Body))
		}
		e.tasks, e.batch.Tasks = make([]task, n), make([]*backend.Task, n)
	}
	for i := range e.tasks {
		t := &e.tasks[i]
		e.session.parsed.Shapes = t.shapes[:0]
		_, err := body.NextRequest(&e.session.parsed)
		if err := t.read(e, &e.session.parsed, m.Body, body.Copies, err); err != nil {
			return err
		}
		e.batch.Tasks[i] = &t.Task
	}
	return nil
}

// read creates the task of a request, whose inputs are copied if the server wants their blocks
// back. failed is the error if the request could not be parsed completely; then read takes only its
// loans.
func (t *task) read(e *execution, p *ipc.RequestBody, body []byte, copies bool, failed error) error {
	s := e.session
	t.execution = e
	r := &t.request
	r.Inputs = t.few[:0]
	if len(p.Inputs) > len(t.few) {
		r.Inputs = make([]infer.Tensor, 0, len(p.Inputs))
	}
	for i := range p.Inputs {
		tensor, loan, err := s.tensor(&p.Inputs[i], body)
		if loan != nil {
			t.loans = append(t.loans, loan)
			if copies {
				tensor.Data, tensor.Memory = bytes.Clone(tensor.Data), nil
			}
		}
		if err != nil && failed == nil {
			failed = err
		}
		r.Inputs = append(r.Inputs, tensor)
	}
	if failed != nil {
		return detail(failed)
	}
	h := &p.Head
	r.Model, r.Version = s.model.Name, s.model.Version
	r.ID, r.Flags, r.TimeoutMicros, r.Priority = string(p.ID), h.Flags, h.Timeout, h.Priority
	if h.CorrelKind == ipc.CorrelationText {
		r.Correlation.Text = string(p.CorrelText)
	} else {
		r.Correlation.Number = h.Correlation
	}
	var err error
	if r.Parameters, err = infer.ParseParameters(p.Parameters); err != nil {
		return err
	}
	if h.Outputs != ipc.AllOutputs {
		r.Outputs = make([]string, h.Outputs)
		for i := range r.Outputs {
			if r.Outputs[i], err = s.names.name(p.OutputName(i)); err != nil {
				return err
			}
		}
		r.Padding = h.Outputs == 0
	}
	if s.batches && len(r.Inputs) > 0 && len(r.Inputs[0].Shape) > 0 {
		r.BatchSize = r.Inputs[0].Shape[0]
	}
	t.trace = string(p.Trace)
	r.Caller = &e.caller
	t.context.task = t
	t.Task = backend.Task{Context: &t.context, Request: r, Handle: h.Handle, Send: t.send}
	if s.decoupled {
		s.open.add(t)
	}
	return nil
}

// tensor creates a tensor from a descriptor. The caller owns the reference to the loan, even after
// an error.
func (s *session) tensor(d *ipc.Descriptor, body []byte) (t infer.Tensor, loan *peer.Loan, err error) {
	t = infer.Tensor{DataType: infer.DataType(d.Type), Shape: d.Shape}
	if d.Region == ipc.InRequests {
		if loan, err = s.peer.Borrow(d.Ticket, d.Offset, d.Length); err != nil {
			return t, nil, err
		}
		t.Data, t.Memory = loan.Bytes(), loan
	} else if t.Data, err = d.InlineBytes(body); err != nil {
		return t, nil, err
	}
	if !t.DataType.Valid() {
		return t, loan, fmt.Errorf("a tensor is of type %d", d.Type)
	}
	t.Name, err = s.names.name(d.Name)
	return t, loan, err
}

// seen returns the time at which the author's Execute is called. That is the time at which the
// frame was seen, because the work in between takes less than a microsecond. With many requests or
// copied inputs it is 0, and the clock is read.
func (e *execution) seen(at int64) int64 {
	if len(e.tasks) > 1 {
		return 0
	}
	for _, loan := range e.one[0].loans {
		if loan.Copied() {
			return 0
		}
	}
	return at
}

// settle settles the loans that only this batch and its responses hold, and reports whether there
// are any.
func (e *execution) settle(answers []held) (some bool) {
	for i := range answers {
		outputs := answers[i].response.Outputs
		for _, loan := range answers[i].task.loans {
			n := 1
			for j := range outputs {
				if other, ok := outputs[j].Memory.(*peer.Loan); ok && other == loan {
					n++
				}
			}
			some = loan.Settle(n) || some
		}
	}
	return some
}

// letGo releases the batch's loans. faults was counted after they were settled; 0 if none was.
func (e *execution) letGo(faults peer.Faults) {
	for i := range e.tasks {
		t := &e.tasks[i]
		for j, loan := range t.loans {
			loan.End(faults)
			t.loans[j] = nil
		}
		t.loans = t.loans[:0]
	}
}

// refuse answers a batch that was not begun.
func (s *session) refuse(number uint64, text string) {
	s.logs.complain(number, text)
	a := newResponses()
	defer a.free()
	a.tickets = s.peer.TakeTickets(a.tickets)
	s.peer.HoldTickets(false)
	now := backend.Now()
	times := &backend.Report{ComputeStart: now, ComputeEnd: now}
	if err := a.sendExecuted(s, now, number, times, text); exhausted(err) {
		_ = a.sendExecuted(s, now, number, times, text[:min(len(text), mostMessage)])
	}
}

// skip skips a withdrawn batch and notifies the server. The batch's loans go back after the notice.
func (s *session) skip(m peer.Message) {
	s.peer.KeepTickets()
	e := &execution{session: s, number: m.ID}
	if err := e.read(m); err != nil {
		s.logs.complain(m.ID, fmt.Sprintf("the server's message is not understood: %v", err))
	}
	for i := range e.tasks {
		s.open.remove(e.tasks[i].Handle)
	}
	e.letGo(0)
	head := ipc.ExecutedHead{Status: ipc.StatusSkipped}
	_ = s.peer.Fill(ipc.Executed, m.ID, ipc.ExecutedSize, func(body []byte) { head.Put(body) })
	list := s.peer.TakeTickets(nil)
	for _, ticket := range list {
		s.peer.GiveBack(ticket)
	}
}

// send implements backend.Task.Send. The complete response to a request of a model that is not
// decoupled travels in EXECUTED, if that is the next frame.
func (t *task) send(r *infer.Response) {
	e := t.execution
	s := e.session
	final := r.Final
	if s.decoupled && s.open.get(t.Handle) == nil {
		r.Release() // the request was ended by giveUp
		return
	}
	if final && !s.decoupled && !r.Empty && e.hold(t, r) {
		t.over()
		return
	}
	full := t.window.enter(s, r)
	a := newResponses()
	a.add(s, t.Handle, r)
	err := a.sendResponse(s, t.Handle)
	if exhausted(err) {
		a.free()
		a = newResponses()
		a.fail(gathered{ResponseHead: ipc.ResponseHead{Handle: t.Handle, Flags: flagsOf(r)}}, infer.Errorf(infer.Internal, "%s", err.Error()))
		_ = a.sendResponse(s, t.Handle)
	}
	a.free()
	r.Release()
	switch {
	case final:
		t.over()
	case full:
		t.window.await(s)
	case s.decoupled:
		s.peer.Look() // CREDIT may have come
	}
}

// hold keeps the last response of a request for EXECUTED. It returns false if EXECUTED has been
// sent, or is about to be.
func (e *execution) hold(t *task, r *infer.Response) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken {
		return false
	}
	if e.held == nil {
		e.held = e.few[:0]
	}
	e.held = append(e.held, held{t, r})
	return true
}

func flagsOf(r *infer.Response) uint32 {
	if r.Final {
		return ipc.FlagFinal
	}
	return 0
}

// giveUp ends the request with an error. The goroutine that reads calls it. An author who waits for
// CREDIT continues.
func (t *task) giveUp(why error) {
	a := newResponses()
	defer a.free()
	s := t.execution.session
	a.fail(gathered{ResponseHead: ipc.ResponseHead{Handle: t.Handle, Flags: ipc.FlagFinal}}, infer.Errorf(infer.Internal, "%s", why.Error()))
	if s.open.take(t.Handle) {
		_ = a.sendResponse(s, t.Handle)
	}
	t.window.end()
}

// over is called with the last response.
func (t *task) over() {
	s := t.execution.session
	if s.decoupled {
		s.open.remove(t.Handle)
		t.window.end()
	}
	t.context.end()
}

// done implements backend.Batch.Done for every batch.
func done(b *backend.Batch, report backend.Report) {
	b.Tasks[0].Context.(*requestContext).task.execution.done(report)
}

// done sends the responses to the server.
func (e *execution) done(report backend.Report) {
	s := e.session
	e.mu.Lock()
	answers := e.held
	e.held, e.taken = nil, true
	e.mu.Unlock()
	a := newResponses()
	// One count of faults decides which loans are passed on and which are dropped below. It is final
	// for settled loans.
	if e.settle(answers) {
		a.faults = s.peer.Faults()
	}
	faults := a.faults
	for i := range answers {
		a.add(s, answers[i].task.Handle, answers[i].response)
	}
	for _, t := range report.Rescheduled {
		a.reschedule(t.Handle)
		s.open.remove(t.Handle)
	}
	for _, i := range report.Failed {
		a.failure(e.tasks[i].Handle)
	}
	// The loans that end here travel in this same frame.
	s.peer.KeepTickets()
	for i := range answers {
		answers[i].response.Release()
		answers[i] = held{}
	}
	e.letGo(faults) // behind the responses, whose references are not the last then
	a.tickets = s.peer.TakeTickets(a.tickets)
	s.peer.HoldTickets(false)
	text := ""
	if report.Err != nil {
		text = infer.AsError(report.Err).Message
		if text == "" {
			text = "the batch has failed"
		}
	}
	at := report.Made
	if len(a.blocks) > 0 || a.head > mostInline { // copied meanwhile, or about to be
		at = 0
	}
	err := a.sendExecuted(s, at, e.number, &report, text)
	if exhausted(err) {
		s.failWhole(e, a, report, err)
	}
	a.free()
	e.over(at)
}

// failWhole answers a batch if there is no memory for its responses.
func (s *session) failWhole(e *execution, a *responses, report backend.Report, err error) {
	b := newResponses()
	defer b.free()
	b.tickets = append(b.tickets, a.tickets...)
	text := err.Error()
	s.logs.complain(e.number, text)
	_ = b.sendExecuted(s, 0, e.number, &report, text)
}

// over records that EXECUTED has been sent, and when (0: unknown).
func (e *execution) over(at int64) {
	e.mu.Lock()
	e.settled, e.answered = true, at
	if e.waiter != nil {
		close(e.waiter)
	}
	e.mu.Unlock()
}

// pending returns a channel that is closed when EXECUTED has been sent, or nil if it has been.
func (e *execution) pending() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settled {
		return nil
	}
	if e.waiter == nil {
		e.waiter = make(chan struct{})
	}
	return e.waiter
}

// requestContext is cancelled when no client waits for the response to a request any more, because
// the client has disconnected or the response has been sent. It only reads the ring when it is
// asked, as most contexts never are.
type requestContext struct {
	task *task
	gone atomic.Pointer[chan struct{}] // made by the first Done
	over atomic.Bool                   // the request has been answered
}

func (c *requestContext) session() *session { return c.task.execution.session }

// end is called when the request has its response.
//
// Ordering: over is set before the watchers are looked up, and Done checks over after becoming a
// watcher. One of the two sees the other, so no channel stays open forever.
func (c *requestContext) end() {
	c.over.Store(true)
	c.session().cancelled.forget(c.task.Handle)
}

var _ context.Context = (*requestContext)(nil)

// Deadline implements context.Context.
func (c *requestContext) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// Value implements context.Context.
func (c *requestContext) Value(any) any { return nil }

// Err implements context.Context. It is not nil once Done's channel is closed, as package context
// requires.
func (c *requestContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	if gone := c.gone.Load(); gone != nil {
		select {
		case <-*gone:
			return context.Canceled
		default:
		}
	}
	c.session().peer.Look()
	if c.session().cancelled.has(c.task.Handle) {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	if gone := c.gone.Load(); gone != nil {
		return *gone
	}
	made := c.session().cancelled.watch(c.task.Handle)
	if !c.gone.CompareAndSwap(nil, &made) {
		made = *c.gone.Load()
	}
	if c.over.Load() {
		c.session().cancelled.forget(c.task.Handle)
	}
	return made
}
