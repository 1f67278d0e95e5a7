package process

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// TestHostCallsAreRefusedBeforeHello checks that host calls before HELLO are protocol errors.
func TestHostCallsAreRefusedBeforeHello(t *testing.T) {
	l := newFakeLife(t, processtest.Backings["sealed"]).newLife()
	defer l.calls.Close(false)
	l.seen = phaseStarted
	body := []byte("\x81\xa9operation\xaanew_family")
	if err := l.handle(ipc.Frame{Kind: ipc.Call, ID: 1, Body: body}); processtest.RuleOf(err) != "kind" {
		t.Errorf("got error %v, want one of rule kind", err)
	}
	l.seen = phaseHello
	if err := l.handle(ipc.Frame{Kind: ipc.Call, ID: 1, Body: body}); processtest.RuleOf(err) == "kind" {
		t.Errorf("after HELLO: got error %v", err)
	}
}

// TestLongReasonsAreCutOrRefused checks that a model's long text about why it is not ready is cut.
// Without room for the text, the reason is the lack of memory.
func TestLongReasonsAreCutOrRefused(t *testing.T) {
	body, err := frames.EncodeMap(ipc.ReadyAnswer, &struct {
		Error string `msgpack:"error"`
	}{strings.Repeat("m", frames.MaxMap/2)})
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{1 << 30, 1 << 20} {
		l := newFakeLife(t, processtest.Backings["sealed"]).newLife()
		l.quota.heap = &frames.Heap{Account: budget.New(budget.Config{Limit: limit})}
		l.seen = phaseInitialized
		c, _ := l.readiness.question()
		if err := l.handle(ipc.Frame{Kind: ipc.ReadyAnswer, ID: c.probe, Body: body}); err != nil {
			t.Errorf("with %d bytes: got error %v, want none", limit, err)
		}
		reason := infer.AsError(c.err)
		if refused := limit < 1<<30; reason == nil || len(reason.Message) > maxReason || refused == (reason.Code == infer.Internal) {
			t.Errorf("with %d bytes: got reason %.60v", limit, reason)
		}
		if n := l.quota.heap.Account.Used(budget.Frames); n != 0 {
			t.Errorf("with %d bytes: %d bytes are charged in the end, want none", limit, n)
		}
		l.calls.Close(false)
	}
}
