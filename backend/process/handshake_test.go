package process

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/process/processtest"
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
