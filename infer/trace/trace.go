package trace

import (
	"strconv"
	"unicode/utf8"
)

// Trace is the record of one request. Its methods may be called from any goroutine, and on nil.
type Trace struct {
	tree   *Tree
	parent *Trace

	// Guarded by tree.mu until the tree is complete.
	record
	begun, queued, given, responded, ended bool
	since                                  int64 // of Begin
	activities                             int
}

type record = Record

// Record contains the entries of one request.
type Record struct {
	ID       uint64
	ParentID uint64 // 0: a client's request
	// Model, Version and RequestID are set by Begin.
	Model     string
	Version   int64
	RequestID string
	// Span identifies the request in the contexts that its model passes on; zero without a TraceID.
	Span    SpanID
	Entries []Entry
}

// Entry is one event.
type Entry struct {
	Name   Name
	At     int64   // ns of the Config's clock
	Tensor *Tensor // for names that begin with TENSOR_
	Own    bool    // reported by a backend, which chose its name
}

// Name is the name of an event, in Triton's words.
type Name string

// The names. Model has no time: it names the model of a request.
const (
	Model Name = ""

	HTTPReceiveStart  Name = "HTTP_RECV_START"
	HTTPReceiveEnd    Name = "HTTP_RECV_END"
	HTTPSendStart     Name = "HTTP_SEND_START"
	HTTPSendEnd       Name = "HTTP_SEND_END"
	GRPCWaitReadStart Name = "GRPC_WAITREAD_START"
	GRPCWaitReadEnd   Name = "GRPC_WAITREAD_END"
	GRPCSendStart     Name = "GRPC_SEND_START"
	GRPCSendEnd       Name = "GRPC_SEND_END"
	ResponseComplete  Name = "INFER_RESPONSE_COMPLETE"

	RequestStart       Name = "REQUEST_START"
	QueueStart         Name = "QUEUE_START"
	ComputeStart       Name = "COMPUTE_START"
	ComputeInputEnd    Name = "COMPUTE_INPUT_END"
	ComputeOutputStart Name = "COMPUTE_OUTPUT_START"
	ComputeEnd         Name = "COMPUTE_END"
	RequestEnd         Name = "REQUEST_END"

	QueueInput    Name = "TENSOR_QUEUE_INPUT"
	BackendOutput Name = "TENSOR_BACKEND_OUTPUT"
)

// Child returns the trace of a request made on behalf of t's request. It joins the tree in Begin.
// It is nil if t is nil or Memory has no room for it.
func (t *Trace) Child() *Trace {
	if t == nil || !t.tree.hold(traceSize) {
		return nil
	}
	return &Trace{tree: t.tree, parent: t}
}

// Begin records that a version of a model has the request, since at.
func (t *Trace) Begin(model string, version int64, request string, at int64) {
	if t == nil {
		return
	}
	if !t.tree.hold(copies * int64(len(request))) {
		request = ""
	}
	tree := t.tree
	tree.mu.Lock()
	defer tree.mu.Unlock()
	if tree.complete || t.begun {
		return
	}
	t.begun, t.since = true, at
	tree.open++
	if t.parent != nil {
		t.ParentID = t.parent.ID
		tree.enterLocked(t)
	}
	t.Model, t.Version, t.RequestID = model, version, request
	if tree.config.Timestamps {
		t.Entries = append(t.Entries, Entry{Name: Model}, Entry{Name: RequestStart, At: at}) // bound: two events of a request
	}
}

// Queued records that a scheduler has the request, since at, and reports whether this is the first
// time.
func (t *Trace) Queued(at int64) bool {
	if t == nil {
		return false
	}
	t.tree.mu.Lock()
	defer t.tree.mu.Unlock()
	if t.queued || !t.recordingLocked() {
		return false
	}
	t.queued = true
	t.stampLocked(QueueStart, at)
	return true
}

// Given records that an instance has the request, or is about to get it.
func (t *Trace) Given() {
	if t == nil {
		return
	}
	t.tree.mu.Lock()
	defer t.tree.mu.Unlock()
	t.given = t.recordingLocked()
}

// Executed records the times of an execution: its start, when the inputs were ready, when the model
// had answered, and its end.
func (t *Trace) Executed(start, inputEnd, outputStart, end int64) {
	if t == nil {
		return
	}
	tree := t.tree
	room := tree.hold(executionSize)
	tree.mu.Lock()
	if t.recordingLocked() {
		if room {
			t.stampLocked(ComputeStart, start)
			t.stampLocked(ComputeInputEnd, inputEnd)
			t.stampLocked(ComputeOutputStart, outputStart)
			t.stampLocked(ComputeEnd, end)
		}
		t.given = false
		t.endLocked()
	}
	tree.unlock()
}

// Limits of the activities of one request.
const (
	mostActivities   = 1000
	mostActivityName = 256 // bytes
)

// ActivityName reports whether Activity accepts a name.
func ActivityName(name string) bool {
	return name != "" && len(name) <= mostActivityName && utf8.ValidString(name)
}

// Activity records an activity of a backend. Its time is clamped to the time of the request. Beyond
// mostActivities, or without room in Memory, it is left out.
func (t *Trace) Activity(name string, at int64) {
	if t == nil || !t.tree.config.Timestamps {
		return
	}
	tree := t.tree
	bytes := copies * int64(len(name)+entrySize)
	room := tree.take(bytes)
	tree.mu.Lock()
	switch {
	case !t.recordingLocked():
	case !room || t.activities == mostActivities:
		tree.left++
	default:
		t.activities++
		at = max(t.since, min(at, tree.config.Now()))
		t.Entries = append(t.Entries, Entry{Name: Name(name), At: at, Own: true}) // bound: mostActivities, taken above
		tree.taken += bytes
		bytes = 0
	}
	tree.mu.Unlock()
	if room {
		tree.give(bytes)
	}
}

// Returned records that the instance has not begun the request and has given it back.
func (t *Trace) Returned() {
	if t == nil {
		return
	}
	tree := t.tree
	tree.mu.Lock()
	t.given = false
	t.endLocked()
	tree.unlock()
}

// Responded records a response. The last one ends the request.
func (t *Trace) Responded(last bool) {
	if t == nil {
		return
	}
	tree := t.tree
	tree.mu.Lock()
	if t.parent == nil && !tree.responded {
		tree.responded = true
		tree.frontLocked(t, ResponseComplete, 0)
	}
	if last {
		t.responded = true
		t.endLocked()
	}
	tree.unlock()
}

// Refused ends a request that its version has not accepted.
func (t *Trace) Refused() {
	if t == nil {
		return
	}
	tree := t.tree
	tree.mu.Lock()
	t.responded, t.given = true, false
	t.endLocked()
	tree.unlock()
}

// Stamp records an event of the front end, now.
func (t *Trace) Stamp(name Name) {
	t.StampAt(name, 0)
}

// StampAt is Stamp for another time; 0 is now.
func (t *Trace) StampAt(name Name, at int64) {
	if t == nil {
		return
	}
	t.tree.mu.Lock()
	defer t.tree.mu.Unlock()
	t.tree.frontLocked(t, name, at)
}

// Finish records that the front end is done with the request.
func (t *Trace) Finish() {
	if t == nil {
		return
	}
	tree := t.tree
	tree.mu.Lock()
	if !tree.finished {
		tree.finished = true
		tree.open--
	}
	tree.unlock()
}

// Text identifies the trace to a model: its number, followed by the W3C context as JSON if there is
// one.
func (t *Trace) Text() string {
	if t == nil {
		return ""
	}
	return strconv.FormatUint(t.ID, 10) + t.context()
}

// Is reports whether text, made by Text, means this trace.
func (t *Trace) Is(text []byte) bool {
	if t == nil || len(text) == 0 {
		return false
	}
	number := strconv.AppendUint(make([]byte, 0, 20), t.ID, 10)
	if len(text) < len(number) || string(text[:len(number)]) != string(number) {
		return false
	}
	rest := text[len(number):]
	return len(rest) == 0 || rest[0] == '{'
}

func (t *Trace) recordingLocked() bool { return t.begun && !t.ended }

func (t *Trace) stampLocked(name Name, at int64) {
	if t.tree.config.Timestamps {
		t.Entries = append(t.Entries, Entry{Name: name, At: at}) // bound: the stages of a request
	}
}

// endLocked ends the request if no event follows.
func (t *Trace) endLocked() {
	if !t.recordingLocked() || !t.responded || t.given {
		return
	}
	t.ended = true
	t.stampLocked(RequestEnd, t.tree.config.Now())
	t.tree.open--
}
