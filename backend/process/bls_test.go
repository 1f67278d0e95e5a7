package process

import (
	"context"
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestInferIsCancelledWithItsCallers checks that a BLS request names the execution that made it,
// and is cancelled when all clients of that execution are gone.
func TestInferIsCancelledWithItsCallers(t *testing.T) {
	host := &processtest.Host{}
	l := newFakeLife(t, shm.Memfd{}).newLife()
	l.seen = phaseInitialized
	l.bls.Host, l.bls.Version = host, 3
	defer func() {
		l.calls.Close(false)
		l.bls.Close()
		for i := range host.Taken() { // end requests in flight
			host.Request(i).Send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "")))
		}
		if n, _ := l.bls.InFlight(); n != 0 {
			t.Errorf("%d BLS requests are in flight, want none", n)
		}
	}()
	ask := func(number uint64, request processtest.Infer) {
		t.Helper()
		request.Model = "other"
		if err := l.handle(ipc.Frame{Kind: ipc.Infer, ID: number, Body: request.Encode()}); err != nil {
			t.Fatalf("INFER %d: got error %v", number, err)
		}
	}
	var tasks []*backend.Task
	var leave []context.CancelFunc
	outer := infer.NewCaller("client", 1, nil, false)
	for i := range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		leave = append(leave, cancel)
		tasks = append(tasks, &backend.Task{Context: ctx, Request: &infer.Request{ID: fmt.Sprint(i), Caller: outer}, Handle: 4<<32 | uint64(i)})
	}
	l.setUp()
	l.in.current.Store(l)
	l.number = 5
	l.current[0] = batchInFlight{batch: &backend.Batch{Tasks: tasks}, number: 4}
	l.count = 1
	ask(1, processtest.Infer{Batch: 4, Flags: ipc.InferHolding})
	ask(2, processtest.Infer{Batch: 3, Flags: ipc.InferHolding}) // batch 3 has ended
	ask(3, processtest.Infer{})
	first, second, third := host.Request(0), host.Request(1), host.Request(2)
	if c := first.Request.Caller; c.Model != "m" || c.Version != 3 || len(c.Requests) != 2 || c.Requests[1] != tasks[1].Request || !c.Holding || first.Request.Depth() != 2 {
		t.Errorf("got caller %+v at depth %d", c, first.Request.Depth())
	}
	for _, c := range []processtest.Submitted{second, third} {
		if len(c.Request.Caller.Requests) != 0 || c.Request.Caller.Holding || c.Request.Depth() != 1 {
			t.Errorf("got caller %+v, want one without requests", c.Request.Caller)
		}
	}
	ask(5, processtest.Infer{Batch: 4, Flags: ipc.InferHolding | ipc.InferGuess}) // from some other thread
	guessed := host.Request(3)
	if c := guessed.Request.Caller; len(c.Requests) != 2 || c.Holding || guessed.Request.Depth() != 2 {
		t.Errorf("got caller %+v at depth %d of a guess", c, guessed.Request.Depth())
	}
	for i, task := range tasks {
		if first.Context.Err() != nil {
			t.Errorf("cancelled after %d of 2 clients have gone", i)
		}
		leave[i]()
		l.in.Cancel(task)
	}
	if first.Context.Err() == nil || second.Context.Err() != nil || third.Context.Err() != nil || guessed.Context.Err() != nil {
		t.Errorf("want the request of the batch cancelled, and no other")
	}
	// A model may still make requests afterwards, to clean up.
	ask(4, processtest.Infer{Batch: 4, Flags: ipc.InferHolding})
	if host.Request(4).Context.Err() != nil {
		t.Errorf("a request is cancelled that was made after the client had gone")
	}
	l.count = 0
}
