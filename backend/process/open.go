package process

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// The window of one request of a decoupled model: the responses and bytes that the stub may have
// sent without credit before its model's send waits. A response counts until it has left the server
// or is dropped there.
const (
	windowResponses = 64
	windowBytes     = 8 << 20
)

// maxOpen is the number of requests that a stub may leave open. Further batches are rejected.
const maxOpen = 1 << 16

// stream is a request for which the stub has sent a separate response, or which it has left open
// when its batch was executed.
type stream struct {
	task  *backend.Task
	ended bool // FINAL has come, or is no longer awaited; guarded by inFlight.mu
	// refusal is set when there was no memory for a response. Later responses are dropped, and this
	// error is the last response. Guarded by the receive lock.
	refusal *infer.Error
	// holder counts its responses after the model has used half of its share; nil before. Guarded
	// by the receive lock.
	holder *budget.Holder
	lent   *lending // the blocks of its batch; nil without any

	// window is apart, because responses keep it after the stream's end. They must not keep the
	// task: its context refers to the RPC, and the RPC's unread replies to the responses.
	*window
}

func newStream(of *inFlight, task *backend.Task, handle uint64) *stream {
	return &stream{task: task, window: &window{of: of, handle: handle}}
}

// lending is the blocks that a process needs until all requests of a batch have been answered.
// Guarded by inFlight.mu.
type lending struct {
	group *shm.Group
	open  int // requests
}

// whole returns the last response, or the refusal instead.
func (s *stream) whole(last *infer.Response) *infer.Response {
	if s.refusal == nil {
		return last
	}
	last.Release()
	return infer.ErrorResponse(s.refusal)
}

// window counts the uncredited responses of one request. The reader of the ring takes, the
// goroutines that release responses leave, and the goroutine that ends the stream closes. Responses
// may be released long after that.
type window struct {
	of     *inFlight
	handle uint64

	mu        sync.Mutex // a leaf
	responses int        // out
	bytes     int64      // out
	// The part that has left the server but is not credited yet. Credit is sent for half a window
	// at once.
	leftResponses int
	leftBytes     int64
	over          bool // no sender needs credit
}

// take counts a response that has come, and reports whether the window allows it.
func (w *window) take(decoupled, final bool, bytes int64) bool {
	most, mostBytes := windowResponses, int64(windowBytes)
	if !decoupled { // it has one response, and perhaps a final error after it
		most, mostBytes = 1, math.MaxInt64
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !final && (w.responses >= most || w.bytes >= mostBytes) {
		return false
	}
	w.responses++
	w.bytes += bytes
	return true
}

// leave counts a response that has left the server, and returns the credit for the stub.
func (w *window) leave(bytes int64) (responses int, total int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leftResponses++
	w.leftBytes += bytes
	if w.over || w.leftResponses < windowResponses/2 && w.leftBytes < windowBytes/2 {
		return 0, 0
	}
	responses, total = w.leftResponses, w.leftBytes
	w.responses -= responses
	w.bytes -= total
	w.leftResponses, w.leftBytes = 0, 0
	return responses, total
}

// close ends the counting and returns the uncredited responses and bytes.
func (w *window) close() (responses int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	return w.responses, w.bytes
}

// windowedResponse is a response that counts in the window of its stream.
type windowedResponse struct {
	infer.Response
	slot slot
	kept frames.Kept
}

// slot implements infer.Memory.
type slot struct {
	window *window
	bytes  int64
	refs   atomic.Int32
}

// Retain adds a reference.
func (s *slot) Retain() { s.refs.Add(1) }

// Release drops a reference. With the last one the response has left the server.
func (s *slot) Release() {
	if s.refs.Add(-1) != 0 {
		return
	}
	if responses, bytes := s.window.leave(s.bytes); responses > 0 {
		s.window.credit(responses, bytes)
	}
}

// credit sends credit to the stub. It does not wait.
func (w *window) credit(responses int, bytes int64) {
	var body [ipc.CreditSize]byte
	ipc.PutCredit(body[:], uint32(responses), uint64(bytes))
	w.of.mustSend(ipc.Credit, w.handle, body[:])
}

// mustSend sends a short frame that the stub needs to continue. It does not wait; a broken channel
// ends the life.
func (f *inFlight) mustSend(kind ipc.Kind, id uint64, body []byte) {
	if err := f.channel.Send(kind, id, body); err != nil && !errors.Is(err, ipc.ErrClosed) {
		f.session.fail(err)
	}
}

// opened are the requests that are open after their batches have been executed. Guarded by
// inFlight.mu.
type opened struct {
	byHandle map[uint64]*stream
	byTask   map[*backend.Task]*stream
	ended    bool          // with the life
	emptied  chan struct{} // closed when the stub has no work; nil until someone waits for it
}

func (o *opened) add(s *stream) {
	if o.byHandle == nil {
		o.byHandle, o.byTask = make(map[uint64]*stream), make(map[*backend.Task]*stream)
	}
	o.byHandle[s.handle], o.byTask[s.task] = s, s // bound: requests, which are charged
}

func (o *opened) remove(s *stream) {
	if o.byHandle[s.handle] == s {
		delete(o.byHandle, s.handle)
		delete(o.byTask, s.task)
	}
}

// handleOf returns the handle of a request. It holds the low half of the batch's number: batches
// whose numbers are 2^32 apart never exist together.
func handleOf(number uint64, index int) uint64 { return number<<32 | uint64(index) }

// indexOf returns the index of a request in the batch, by its handle.
func (i *batchInFlight) indexOf(handle uint64) (index int, ok bool) {
	index = int(handle & math.MaxUint32)
	return index, handle>>32 == i.number&math.MaxUint32 && index < len(i.batch.Tasks)
}

// handleOf returns the handle of a request of the batch.
func (i *batchInFlight) handleOf(index int) uint64 { return handleOf(i.number, index) }

// stream returns the stream of a request, or nil if no separate response was sent for it.
func (i *batchInFlight) stream(index int) *stream {
	if i.streams == nil {
		return nil
	}
	return i.streams[index]
}

// streamLocked returns the stream of a request that is executed or open.
func (f *inFlight) streamLocked(handle uint64) (*stream, error) {
	if s := f.open.byHandle[handle]; s != nil {
		return s, nil
	}
	// Only the batch in execution can have sent it: the one behind has not begun. An honest stub
	// cannot have read a batch that is not completely written.
	first := &f.current[0]
	if f.count == 0 || first.number > f.encoded.Load() {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is not open", handle)
	}
	index, ok := first.indexOf(handle)
	if !ok {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is not open", handle)
	}
	if first.streams == nil {
		first.streams = make([]*stream, len(first.batch.Tasks)) // bound: the batch
	}
	s := first.streams[index]
	if s == nil {
		s = newStream(f, first.batch.Tasks[index], handle)
		first.streams[index] = s
	}
	if s.ended {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is final", handle)
	}
	return s, nil
}

// streamOf is streamLocked for a response that has come. It returns nil without an error if the
// life has ended. serves is false during a warm-up.
func (f *inFlight) streamOf(handle uint64) (s *stream, serves bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.ended {
		return nil, false, nil
	}
	s, err = f.streamLocked(handle)
	return s, f.count == 0 || !f.current[0].batch.Trial, err
}

// responded delivers a response that the stub has sent separately.
func (l *life) responded(f ipc.Frame) error {
	r := &l.response
	if f.Spilled {
		defer func() { l.response = ipc.ResponseBody{} }() // whose lists may be long
	}
	tickets, err := ipc.ParseResponse(f.Body, r)
	if err != nil {
		return err
	}
	if r.Handle != f.ID {
		return ipc.Broken("handle", "RESPONSE to request %#x has a response to request %#x", f.ID, r.Handle)
	}
	present, final := r.Flags&ipc.FlagPresent != 0, r.Flags&ipc.FlagFinal != 0
	switch {
	case r.Flags&ipc.FlagReschedule != 0 || !present && !final:
		return ipc.Broken("frame", "flags of a RESPONSE are %#x", r.Flags)
	case !present && len(r.Outputs) > 0:
		return ipc.Broken("frame", "RESPONSE has %d outputs but no response", len(r.Outputs))
	}
	s, serves, err := l.streamOf(r.Handle)
	if serves {
		l.in.served.Store(true)
	}
	if s == nil {
		return err
	}
	a := &windowedResponse{}
	a.Final, a.Empty = final, !present
	if present {
		var bytes uint64
		for i := range r.Outputs {
			bytes += r.Outputs[i].Length // no overflow: each length is checked against existing memory below
		}
		if !s.take(l.decoupled, final, int64(bytes&math.MaxInt64)) {
			return ipc.Broken("quota", "RESPONSE to request %#x beyond its window", r.Handle)
		}
		a.kept.CountFor(l.quota.ofStream(s))
		if !f.Spilled {
			l.decoder.Keep(&a.kept, &f, 1, 0)
		}
		if err = l.decoder.Response(r, &f, l.in.model.env.Name, s.task.Request.Places, &a.Response, &a.kept); err == nil {
			err = l.decoder.Return(tickets)
		}
		if err != nil {
			a.Release()
			return err
		}
		if l.decoupled {
			a.slot.window, a.slot.bytes = s.window, int64(bytes)
			a.slot.refs.Store(1)
			a.Slot = &a.slot
		}
	} else if err := l.decoder.Return(tickets); err != nil {
		return err
	}
	if refusal := a.kept.Refusal(); refusal != nil && s.refusal == nil {
		s.refusal = refusal
		l.tell(s.handle) // nobody waits for further responses
	}
	// The end of the life may have taken the stream since streamOf. It answers only after the last
	// frame has been handled, so a response that is not final may still be delivered before that.
	if final && !l.endStream(s) || !final && s.refusal != nil {
		a.Release() // the end of the life answers, or the response is not wanted
		return nil
	}
	s.task.Send(s.whole(&a.Response))
	return nil
}

// endStream ends a stream, whose final response the caller delivers; false if another goroutine
// does.
func (f *inFlight) endStream(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.ended || f.open.ended {
		return false
	}
	s.ended = true
	s.close()
	f.open.remove(s)
	if s.lent != nil {
		if s.lent.open--; s.lent.open == 0 {
			f.session.answered(s.lent.group)
		}
	}
	f.emptiedLocked()
	return true
}

// emptied returns a channel that is closed when the stub has no batch and no open
// request.
func (f *inFlight) emptied() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.emptied == nil {
		f.open.emptied = make(chan struct{})
		f.emptiedLocked()
	}
	return f.open.emptied
}

func (f *inFlight) emptiedLocked() {
	if f.open.emptied == nil || f.count > 0 || len(f.open.byHandle) > 0 {
		return
	}
	select {
	case <-f.open.emptied:
	default:
		close(f.open.emptied)
	}
}

// openOfLocked lists the tasks of a batch that are open.
func (f *inFlight) openOfLocked(number uint64) (tasks []*backend.Task) { // bound: requests, which are charged
	if len(f.open.byHandle) == 0 {
		return nil
	}
	// It looks up each request that the batch may have had, or scans all open requests if those are
	// fewer.
	if size := max(1, f.maxBatch); size <= len(f.open.byHandle) {
		for i := range size {
			if s := f.open.byHandle[handleOf(number, i)]; s != nil {
				tasks = append(tasks, s.task)
			}
		}
		return tasks
	}
	var handles []uint64
	for handle := range f.open.byHandle {
		if handle>>32 == number&math.MaxUint32 {
			handles = append(handles, handle) // bound: requests, which are charged
		}
	}
	slices.Sort(handles)
	for _, handle := range handles {
		tasks = append(tasks, f.open.byHandle[handle].task)
	}
	return tasks
}

// endOpenLocked ends all open requests, with the life.
func (f *inFlight) endOpenLocked() (left []*stream) {
	for _, s := range f.open.byHandle {
		s.ended = true
		s.close()
		left = append(left, s) // bound: requests, which are charged
	}
	f.open.ended = true
	f.open.byHandle, f.open.byTask = nil, nil
	return left
}

// tell sends CANCEL: no client waits for the response to a request.
func (f *inFlight) tell(handle uint64) {
	var body [8]byte
	binary.LittleEndian.PutUint64(body[:], handle)
	if err := f.channel.Send(ipc.Cancel, 0, body[:]); err != nil {
		f.log.Debug().Err(err).Msg("cancellation was not sent")
	}
}
