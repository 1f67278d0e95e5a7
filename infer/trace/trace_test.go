package trace_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/infer/trace"
)

// recording is a trace tree with a clock that counts its calls.
type recording struct {
	ids  atomic.Uint64
	now  atomic.Int64
	done chan *trace.Tree
}

func (r *recording) root(change func(*trace.Config)) *trace.Trace {
	r.done = make(chan *trace.Tree, 2) // one value; room to detect a second
	c := trace.Config{Timestamps: true, IDs: &r.ids, Now: func() int64 { return r.now.Add(1) }, Done: func(t *trace.Tree) { r.done <- t }}
	if change != nil {
		change(&c)
	}
	return trace.New(c)
}

// shown formats the records of a complete tree. It returns nil if the tree is not complete.
func (r *recording) shown(t *testing.T) []string {
	t.Helper()
	select {
	case tree := <-r.done:
		var list []string
		for _, record := range tree.Records() {
			line := fmt.Sprintf("%d<%d %s/%d %q:", record.ID, record.ParentID, record.Model, record.Version, record.RequestID)
			for _, e := range record.Entries {
				if e.Tensor != nil {
					line += " " + e.Tensor.Name + "=" + e.Tensor.Data
				} else {
					line += " " + string(e.Name)
				}
			}
			list = append(list, line)
		}
		return list
	default:
		return nil
	}
}

// TestATreeIsCompleteWhenAllOfItHasEnded checks that a tree is not complete while an instance still
// executes a step, even after the step's last response.
func TestATreeIsCompleteWhenAllOfItHasEnded(t *testing.T) {
	var r recording
	root := r.root(nil)
	root.Stamp(trace.HTTPReceiveStart)
	root.Begin("ens", 1, "r", 10)
	root.Queued(11)
	step := root.Child()
	step.Begin("m", 3, "s", 20)
	step.Queued(21)
	step.Given()
	step.Responded(true)
	root.Responded(true)
	root.Stamp(trace.HTTPSendEnd)
	root.Finish()
	root.Finish()
	if got := r.shown(t); got != nil {
		t.Fatalf("the tree is complete while an instance has its step: %v", got)
	}
	step.Executed(22, 23, 24, 25)
	step.Stamp(trace.HTTPSendEnd) // too late
	step.Responded(true)
	want := []string{
		`1<0 ens/1 "r": HTTP_RECV_START  REQUEST_START QUEUE_START INFER_RESPONSE_COMPLETE REQUEST_END HTTP_SEND_END`,
		`2<1 m/3 "s":  REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END`,
	}
	if got := r.shown(t); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(r.done) > 0 {
		t.Error("the tree was complete twice")
	}
}

func TestRequestsThatNoInstanceExecutes(t *testing.T) {
	for name, test := range map[string]struct {
		way  func(*trace.Trace)
		want string
	}{
		"refused":              {func(x *trace.Trace) { x.Begin("m", 1, "", 1); x.Refused() }, `1<0 m/1 "":  REQUEST_START REQUEST_END`},
		"never begun":          {func(*trace.Trace) {}, `1<0 /0 "":`},
		"a step never begun":   {func(x *trace.Trace) { x.Begin("m", 1, "", 1); x.Child(); x.Responded(true) }, `1<0 m/1 "":  REQUEST_START INFER_RESPONSE_COMPLETE REQUEST_END`},
		"returned, then fails": {func(x *trace.Trace) { x.Begin("m", 1, "", 1); x.Given(); x.Returned(); x.Responded(true) }, `1<0 m/1 "":  REQUEST_START INFER_RESPONSE_COMPLETE REQUEST_END`},
		"fails, then returned": {func(x *trace.Trace) { x.Begin("m", 1, "", 1); x.Given(); x.Responded(true); x.Returned() }, `1<0 m/1 "":  REQUEST_START INFER_RESPONSE_COMPLETE REQUEST_END`},
		"queued twice":         {func(x *trace.Trace) { x.Begin("m", 1, "", 1); x.Queued(2); x.Queued(3); x.Refused() }, `1<0 m/1 "":  REQUEST_START QUEUE_START REQUEST_END`},
	} {
		var r recording
		root := r.root(nil)
		test.way(root)
		root.Finish()
		if got := r.shown(t); !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestEntriesOfTheFrontEndCanComeLast(t *testing.T) {
	var r recording
	root := r.root(func(c *trace.Config) { c.FrontEndLast = true })
	root.StampAt(trace.GRPCWaitReadStart, 5)
	root.Begin("m", 1, "", 6)
	root.Responded(false)
	root.Responded(true)
	root.Stamp(trace.GRPCSendStart)
	root.Finish()
	want := []string{`1<0 m/1 "":  REQUEST_START REQUEST_END GRPC_WAITREAD_START INFER_RESPONSE_COMPLETE GRPC_SEND_START`}
	if got := r.shown(t); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTensorsAreRecordedIfAsked(t *testing.T) {
	le := binary.LittleEndian
	text := func(elements ...string) (b []byte) {
		for _, e := range elements {
			b = append(le.AppendUint32(b, uint32(len(e))), e...)
		}
		return b
	}
	for _, test := range []struct {
		dataType string
		data     []byte
		want     string
	}{
		{"INT32", le.AppendUint32(le.AppendUint32(nil, 1), math.MaxUint32), "1,-1"},
		{"FP32", le.AppendUint32(nil, math.Float32bits(-1.1754944e-38)), "-1.1754944e-38"},
		{"FP64", le.AppendUint64(nil, math.Float64bits(-2.2250738585072014e-308)), "-2.2250738585072014e-308"},
		{"UINT32", le.AppendUint32(nil, math.MaxUint32), "4294967295"},
		{"BOOL", []byte{1, 0}, "1,0"}, {"UINT8", []byte{65, 200}, "65,200"}, {"INT8", []byte{200}, "-56"},
		{"INT16", []byte{255, 255}, "-1"}, {"UINT16", []byte{255, 255}, "65535"},
		{"INT64", le.AppendUint64(nil, math.MaxUint64), "-1"}, {"UINT64", le.AppendUint64(nil, math.MaxUint64), "18446744073709551615"},
		{"FP32", le.AppendUint32(le.AppendUint32(nil, math.Float32bits(0.1)), math.Float32bits(1e10)), "0.1,1e+10"},
		{"FP64", le.AppendUint64(nil, math.Float64bits(1.0/3)), "0.3333333333333333"},
		{"BYTES", text("a", "", "b,c"), `"a","","b,c"`},
		{"BYTES", append(text("a"), 9, 0, 0, 0, 'x'), `"a"`},
		{"FP16", []byte{0, 60}, ""}, {"INT32", nil, ""}, {"INT32", []byte{1, 2}, ""},
	} {
		var r recording
		root := r.root(func(c *trace.Config) { c.Timestamps, c.Tensors = false, true })
		root.Begin("m", 1, "", 1)
		root.Tensor(trace.QueueInput, "IN", test.dataType, []int64{1}, test.data)
		root.Refused()
		root.Finish()
		if got, want := r.shown(t), []string{`1<0 m/1 "": IN=` + test.want}; !slices.Equal(got, want) {
			t.Errorf("%s %v: got %q, want %q", test.dataType, test.data, got, want)
		}
	}
	var r recording
	root := r.root(nil)
	root.Begin("m", 1, "", 1)
	root.Tensor(trace.QueueInput, "IN", "BOOL", []int64{1}, []byte{1})
	root.Refused()
	root.Finish()
	if got := r.shown(t)[0]; strings.Contains(got, "IN=") {
		t.Errorf("a tensor was recorded without being asked for: %s", got)
	}
}

// TestTextNamesTheTrace checks the text that names a trace to models.
func TestTextNamesTheTrace(t *testing.T) {
	var r recording
	r.ids.Store(6)
	plain := r.root(nil)
	if got := plain.Text(); got != "7" || !plain.Is([]byte("7")) || plain.Is([]byte("70")) || plain.Is([]byte("8")) || plain.Is(nil) {
		t.Errorf("text of a trace without a context is %q, want 7, and no other text may mean it", got)
	}
	with := r.root(func(c *trace.Config) { c.TraceID, c.State = trace.TraceID{1, 15: 2}, `a="b"` })
	with.Begin("m", 1, "", 1)
	text := with.Text()
	begin, end := `8{"traceparent":"00-01000000000000000000000000000002-`, `-01","tracestate":"a=\"b\""}`
	if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) || len(text) != len(begin)+16+len(end) || !with.Is([]byte(text)) {
		t.Errorf("text of a trace with a context is %q, want %s…%s", text, begin, end)
	}
}

// TestNothingIsRecordedWithoutATrace checks that all methods of a nil Trace do nothing and allocate
// nothing.
func TestNothingIsRecordedWithoutATrace(t *testing.T) {
	var none *trace.Trace
	if n := testing.AllocsPerRun(100, func() {
		none.Begin("m", 1, "", 1)
		none.Queued(1)
		none.Given()
		none.Executed(1, 2, 3, 4)
		none.Returned()
		none.Responded(true)
		none.Refused()
		none.Stamp(trace.HTTPSendEnd)
		none.StampAt(trace.HTTPSendEnd, 1)
		none.Tensor(trace.QueueInput, "", "", nil, nil)
		none.Finish()
		if none.Child() != nil || none.Text() != "" || none.Is([]byte("1")) || none.WantsTensors() {
			t.Error("nil is not a trace that records nothing")
		}
	}); n != 0 {
		t.Errorf("a request that is not traced costs %v allocations, want 0", n)
	}
}

// TestTreesAreForManyGoroutines starts and ends steps concurrently.
func TestTreesAreForManyGoroutines(t *testing.T) {
	var r recording
	root := r.root(nil)
	root.Begin("ens", 1, "", 1)
	const steps = 50
	ended := make(chan struct{}, steps)
	for range steps {
		go func() {
			child := root.Child()
			child.Begin("m", 1, "", 1)
			child.Given()
			child.Responded(true)
			child.Executed(1, 2, 3, 4)
			ended <- struct{}{}
		}()
	}
	for range steps {
		<-ended
	}
	root.Responded(true)
	root.Finish()
	if got := r.shown(t); len(got) != steps+1 {
		t.Errorf("the tree has %d records, want %d", len(got), steps+1)
	}
}

// account is a Memory with left bytes.
type account struct{ left int64 }

func (a *account) Take(n int64) bool {
	if n > a.left {
		return false
	}
	a.left -= n
	return true
}

func (a *account) Give(n int64) { a.left += n }

// TestActivitiesOfBackends checks that activities lie between the start and the end of their
// request, and that their number and memory are bounded.
func TestActivitiesOfBackends(t *testing.T) {
	var r recording
	memory := &account{1 << 20}
	root := r.root(func(c *trace.Config) { c.Memory = memory })
	root.Activity("too early", 1)
	root.Begin("m", 1, "", 100)
	r.now.Store(200)
	for _, at := range []int64{150, math.MinInt64, 0, 99, math.MaxInt64} {
		root.Activity("A", at)
	}
	for range 2000 {
		root.Activity("B", 120)
	}
	root.Refused()
	root.Activity("too late", 130)
	root.Finish()
	tree := <-r.done
	entries := tree.Records()[0].Entries
	var at []int64
	for _, e := range entries[2:7] {
		if e.Name != "A" || !e.Own {
			t.Errorf("got entry %+v, want activity A", e)
		}
		at = append(at, e.At)
	}
	if at[4] <= 200 || at[4] > 210 { // now
		t.Errorf("an activity of the future is at %d, want now", at[4])
	}
	if at[4] = 0; !slices.Equal(at, []int64{150, 100, 100, 100, 0}) {
		t.Errorf("activities are at %v, want those before the request at 100", at)
	}
	if n, left := len(entries)-3, tree.LeftOut(); n != 1000 || left != 1005 { // without model, start and end
		t.Errorf("%d activities are recorded and %d left out, want 1000 and 1005", n, left)
	}
	if tree.Release(); memory.left != 1<<20 {
		t.Errorf("%d bytes are left of the account, want all", memory.left)
	}

	memory.left = 100
	root = r.root(func(c *trace.Config) { c.Memory = memory })
	root.Begin("m", 1, "", 100)
	root.Activity("A", 150)
	root.Refused()
	root.Finish()
	if tree = <-r.done; len(tree.Records()[0].Entries) != 3 || tree.LeftOut() != 1 || memory.left != 100 {
		t.Errorf("without room: got %d entries, %d left out, %d bytes", len(tree.Records()[0].Entries), tree.LeftOut(), memory.left)
	}
	for name, want := range map[string]bool{"": false, "a": true, strings.Repeat("a", 256): true, strings.Repeat("a", 257): false, "\xff": false, "\"\n": true} {
		if trace.ActivityName(name) != want {
			t.Errorf("ActivityName(%q) is not %v", name, want)
		}
	}
}

// TestRequestsOfATreeAreBounded checks that ids, executions and BLS requests are left out of a tree
// that runs out of memory.
func TestRequestsOfATreeAreBounded(t *testing.T) {
	var r recording
	id := strings.Repeat("x", 64<<10)
	memory := &account{4 << 10}
	root := r.root(func(c *trace.Config) { c.Memory = memory })
	root.Begin("m", 1, id, 1)
	requests, executions := 0, 0
	for range 100 {
		child := root.Child()
		if child == nil {
			continue
		}
		requests++
		child.Begin("n", 1, "", 2)
		child.Refused()
	}
	for range 100 {
		root.Given()
		root.Executed(1, 2, 3, 4)
	}
	root.Responded(true)
	root.Finish()
	tree := <-r.done
	records := tree.Records()
	for _, e := range records[0].Entries {
		if e.Name == trace.ComputeEnd {
			executions++
		}
	}
	if records[0].RequestID != "" || requests == 0 || requests > 4 || len(records) != 1+requests || executions > 8 {
		t.Errorf("4 KiB hold an id of %d bytes, %d of %d requests and %d executions", len(records[0].RequestID), len(records)-1, requests, executions)
	}
	if want := 1 + 100 - requests + 100 - executions; tree.LeftOut() != want {
		t.Errorf("%d are left out, want %d", tree.LeftOut(), want)
	}
	if tree.Release(); memory.left != 4<<10 {
		t.Errorf("%d bytes are left of the account, want all", memory.left)
	}
	if root.Child() == nil || memory.left != 4<<10 {
		t.Errorf("a complete tree holds %d bytes", 4<<10-memory.left)
	}
}
