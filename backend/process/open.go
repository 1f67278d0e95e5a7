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

// The window of one request of a decoupled model: how much may be out, sent by
// the stub and not yet credited to it, before its model's send waits. What is
// out counts until it has left the server, or is dropped there.
const (
	windowResponses = 64
	windowBytes     = 8 << 20
)

// maxOpen is how many requests a stub may leave open. Batches that come then are
// refused.
const maxOpen = 1 << 16

// stream is a request whose stub has sent a response by itself, or has left it
// open when its batch was executed.
type stream struct {
	of     *inFlight
	task   *backend.Task
	handle uint64
	ended  bool // FINAL has come, or is no longer waited for; guarded by Instance.mu
	// refusal says why there was no room for a response; nil mostly. Later responses are dropped,
	// and this error is the last one. Guarded by the receive lock.
	refusal *infer.Error
	// holder counts its responses since the model has half of its share; nil before. Guarded by
	// the receive lock.
	holder *budget.Holder
	lent   *lending // the blocks of its batch; nil without blocks

	window
}

// lending is blocks that a process needs until all requests of a batch have been answered.
// Guarded by Instance.mu.
type lending struct {
	group *shm.Group
	open  int // requests
}

// whole returns the last response, or the error that it is if there was no room for another one.
func (s *stream) whole(last *infer.Response) *infer.Response {
	if s.refusal == nil {
		return last
	}
	last.Release()
	return infer.ErrorResponse(s.refusal)
}

// window counts what is out of one request. The reader of the ring takes, the goroutines that
// release responses leave, and the goroutine that ends the stream closes: its responses may be
// released long after that.
type window struct {
	mu        sync.Mutex // a leaf
	responses int        // out
	bytes     int64      // out
	// Of these, what has left the server already but is not credited yet: half a
	// window is told at once.
	leftResponses int
	leftBytes     int64
	over          bool // no sender needs credit any more
}

// take counts a response that has come, and reports whether it may.
func (w *window) take(decoupled, final bool, bytes int64) bool {
	most, mostBytes := windowResponses, int64(windowBytes)
	if !decoupled { // which has one response, and perhaps an error behind it that is final
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

// leave counts a response that has left the server, and returns what the stub is
// to be credited.
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

// close ends the counting and returns what is out.
func (w *window) close() (responses int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	return w.responses, w.bytes
}

// windowedResponse is a response on its way up, with its place in the window of its stream.
type windowedResponse struct {
	infer.Response
	slot slot
	kept frames.Kept
}

// slot implements infer.Memory.
type slot struct {
	stream *stream
	bytes  int64
	refs   atomic.Int32
}

// Retain adds a reference.
func (s *slot) Retain() { s.refs.Add(1) }

// Release gives a reference up. With the last one the response has left.
func (s *slot) Release() {
	if s.refs.Add(-1) != 0 {
		return
	}
	if responses, bytes := s.stream.leave(s.bytes); responses > 0 {
		s.stream.credit(responses, bytes)
	}
}

// credit tells the stub what has left. It does not wait.
func (s *stream) credit(responses int, bytes int64) {
	var body [ipc.CreditSize]byte
	ipc.PutCredit(body[:], uint32(responses), uint64(bytes))
	s.of.mustSend(ipc.Credit, s.handle, body[:])
}

// mustSend sends a short frame without which the stub cannot go on. It does not
// wait; a channel that is broken ends the life.
func (f *inFlight) mustSend(kind ipc.Kind, id uint64, body []byte) {
	if err := f.channel.Send(kind, id, body); err != nil && !errors.Is(err, ipc.ErrClosed) {
		f.session.fail(err)
	}
}

// opened are the requests that are open though their batches have been executed.
// Guarded by Instance.mu.
type opened struct {
	byHandle map[uint64]*stream
	byTask   map[*backend.Task]*stream
	ended    bool          // with the life
	emptied  chan struct{} // closed when the stub has nothing any more; nil until the first wait for that
}

func (o *opened) add(s *stream) {
	if o.byHandle == nil {
		o.byHandle, o.byTask = make(map[uint64]*stream), make(map[*backend.Task]*stream)
	}
	o.byHandle[s.handle], o.byTask[s.task] = s, s
}

func (o *opened) remove(s *stream) {
	if o.byHandle[s.handle] == s {
		delete(o.byHandle, s.handle)
		delete(o.byTask, s.task)
	}
}

// handleOf makes the handle of a request. Numbers of batches grow for ever, and
// handles hold their low half: those of batches 2^32 apart are never alive
// together.
func handleOf(number uint64, index int) uint64 { return number<<32 | uint64(index) }

// indexOf returns the place of a request in the batch, by its handle.
func (i *batchInFlight) indexOf(handle uint64) (index int, ok bool) {
	index = int(handle & math.MaxUint32)
	return index, handle>>32 == i.number&math.MaxUint32 && index < len(i.batch.Tasks)
}

// handleOf returns the handle of a request of the batch.
func (i *batchInFlight) handleOf(index int) uint64 { return handleOf(i.number, index) }

// stream returns what is known of a request for which responses were sent, nil
// if none was.
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
	// Only the batch in execution can have sent it: the one behind has not begun. A batch of
	// which not everything has been written cannot have been read by an honest stub.
	first := &f.current[0]
	if f.count == 0 || first.number > f.encoded.Load() {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is not open", handle)
	}
	index, ok := first.indexOf(handle)
	if !ok {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is not open", handle)
	}
	if first.streams == nil {
		first.streams = make([]*stream, len(first.batch.Tasks))
	}
	s := first.streams[index]
	if s == nil {
		s = &stream{of: f, task: first.batch.Tasks[index], handle: handle}
		first.streams[index] = s
	}
	if s.ended {
		return nil, ipc.Broken("handle", "RESPONSE to request %#x, which is final", handle)
	}
	return s, nil
}

// streamOf is streamLocked for a response that has come; nil without an error if the
// life has been ended. serves is false while a warm-up is executed.
func (f *inFlight) streamOf(handle uint64) (s *stream, serves bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.ended {
		return nil, false, nil
	}
	s, err = f.streamLocked(handle)
	return s, f.count == 0 || !f.current[0].batch.Trial, err
}

// responded hands a response up that the stub has sent by itself.
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
			bytes += r.Outputs[i].Length // no overflow: each is checked against memory that exists, below
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
			a.slot.stream, a.slot.bytes = s, int64(bytes)
			a.slot.refs.Store(1)
			a.Slot = &a.slot
		}
	} else if err := l.decoder.Return(tickets); err != nil {
		return err
	}
	if refusal := a.kept.Refusal(); refusal != nil && s.refusal == nil {
		s.refusal = refusal
		l.tell(s.handle) // nobody waits for the others
	}
	// The end of the life may have taken the stream since streamOf. It answers when no frame is
	// handled any more, so a response that is not final may still go up before that.
	if final && !l.endStream(s) || !final && s.refusal != nil {
		a.Release() // the life has been ended meanwhile, or the others are not wanted
		return nil
	}
	s.task.Send(s.whole(&a.Response))
	return nil
}

// endStream ends a stream, whose final response the caller hands up; false if
// another goroutine does.
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
func (f *inFlight) openOfLocked(number uint64) (tasks []*backend.Task) {
	if len(f.open.byHandle) == 0 {
		return nil
	}
	// It looks up each request that the batch may have had, or goes through all that are open,
	// if those are fewer.
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
			handles = append(handles, handle)
		}
	}
	slices.Sort(handles)
	for _, handle := range handles {
		tasks = append(tasks, f.open.byHandle[handle].task)
	}
	return tasks
}

// endOpenLocked ends what is open, with the life.
func (f *inFlight) endOpenLocked() (left []*stream) {
	for _, s := range f.open.byHandle {
		s.ended = true
		s.close()
		left = append(left, s)
	}
	f.open.ended = true
	f.open.byHandle, f.open.byTask = nil, nil
	return left
}

// tell tells the stub that no client waits for the answer to a request.
func (f *inFlight) tell(handle uint64) {
	var body [8]byte
	binary.LittleEndian.PutUint64(body[:], handle)
	if err := f.channel.Send(ipc.Cancel, 0, body[:]); err != nil {
		f.log.Debug().Err(err).Msg("cancellation was not sent")
	}
}
