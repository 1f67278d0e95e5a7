package trace

import (
	"strconv"
	"unicode/utf8"
)

// Trace is the record of one request. Its methods may be called from any goroutine, and
// on nil.
type Trace struct {
	tree   *Tree
	parent *Trace

	// Guarded by tree.mu until the tree is complete.
	record
	begun, queued, given, responded, ended bool
	since                                  int64 // of Begin
	activities                             int
}

// record is what Record shows.
type record = Record

// Record is what has been recorded of one request.
type Record struct {
	ID       uint64
	ParentID uint64 // 0: a client's request
	// Model, Version and RequestID are known from the entry Start on.
	Model     string
	Version   int64
	RequestID string
	// Span names the request in the contexts that its model hands on; zero in trees
	// whose Config has no TraceID.
	Span    SpanID
	Entries []Entry
}

// Entry is something that happened. In files each one is an object of its own.
type Entry struct {
	Name   Name
	At     int64   // ns of the Config's clock
	Tensor *Tensor // of the names that begin with TENSOR_, else nil
	Own    bool    // a backend has reported it: its name is the backend's choice
}

// Name says what happened, in Triton's words.
type Name string

// The entries. Model has no time: it says which model a request has reached.
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

// Child makes the trace of a request that is made for t's. It counts for the tree when it
// begins; nil if t is.
func (t *Trace) Child() *Trace {
	if t == nil {
		return nil
	}
	return &Trace{tree: t.tree, parent: t}
}

// Begin notes that a version of a model has the request, since at.
func (t *Trace) Begin(model string, version int64, request string, at int64) {
	if t == nil {
		return
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
		t.Entries = append(t.Entries, Entry{Name: Model}, Entry{Name: RequestStart, At: at})
	}
}

// Queued notes that a scheduler has the request, since at, and reports whether it is the
// first to say so.
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

// Given notes that an instance has the request, or is about to get it.
func (t *Trace) Given() {
	if t == nil {
		return
	}
	t.tree.mu.Lock()
	defer t.tree.mu.Unlock()
	t.given = t.recordingLocked()
}

// Executed notes that the instance has executed the request: when it took it, when the
// model had its inputs, when the model had answered and when all was done.
func (t *Trace) Executed(start, inputEnd, outputStart, end int64) {
	if t == nil {
		return
	}
	tree := t.tree
	tree.mu.Lock()
	if t.recordingLocked() {
		t.stampLocked(ComputeStart, start)
		t.stampLocked(ComputeInputEnd, inputEnd)
		t.stampLocked(ComputeOutputStart, outputStart)
		t.stampLocked(ComputeEnd, end)
		t.given = false
		t.endLocked()
	}
	tree.unlock()
}

// What backends may report of one request.
const (
	mostActivities   = 1000
	mostActivityName = 256 // bytes
)

// ActivityName reports whether Activity takes a name.
func ActivityName(name string) bool {
	return name != "" && len(name) <= mostActivityName && utf8.ValidString(name)
}

// Activity notes what a backend has done for the request, at a time that is moved into that of the request. Beyond
// mostActivities, or without room in Memory, it is left out. ActivityName takes the name.
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
		t.Entries = append(t.Entries, Entry{Name: Name(name), At: at, Own: true})
		tree.taken += bytes
		bytes = 0
	}
	tree.mu.Unlock()
	if room {
		tree.give(bytes)
	}
}

// Returned notes that the instance has given the request back without a look at it.
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

// Responded notes that a response goes up. The last one ends the request.
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

// Refused ends a request that its model's version has not accepted.
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

// Stamp notes what the front end does now, in the trace that New has made.
func (t *Trace) Stamp(name Name) {
	t.StampAt(name, 0)
}

// StampAt is Stamp for something that was at another time; 0 is now.
func (t *Trace) StampAt(name Name, at int64) {
	if t == nil {
		return
	}
	t.tree.mu.Lock()
	defer t.tree.mu.Unlock()
	t.tree.frontLocked(t, name, at)
}

// Finish says that the front end is done with the request.
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

// Text is what a model is given, so that it can name the trace for requests of its own:
// the number of the trace, and the W3C context as JSON if there is one.
func (t *Trace) Text() string {
	if t == nil {
		return ""
	}
	return strconv.FormatUint(t.ID, 10) + t.context()
}

// Is reports whether a model means this trace by text, which Text has made.
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

// recordingLocked reports whether the request is under way.
func (t *Trace) recordingLocked() bool { return t.begun && !t.ended }

func (t *Trace) stampLocked(name Name, at int64) {
	if t.tree.config.Timestamps {
		t.Entries = append(t.Entries, Entry{Name: name, At: at})
	}
}

// endLocked ends the request if nothing more comes of it.
func (t *Trace) endLocked() {
	if !t.recordingLocked() || !t.responded || t.given {
		return
	}
	t.ended = true
	t.stampLocked(RequestEnd, t.tree.config.Now())
	t.tree.open--
}
