package process_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// sendingHead is the common beginning of these tests' models. A request's id selects the behaviour.
const sendingHead = `
import asyncio, os, signal, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(n, size=1):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.full((1, size), n % 256, np.uint8))])

class TritonPythonModel:
`

// decoupledConfig is modelConfig for a decoupled model.
func decoupledConfig(name string, types ...infer.DataType) *kserve.ModelConfig {
	c := modelConfig(name, 1, types...)
	c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	return c
}

// openRequest is a request whose responses arrive one by one.
type openRequest struct {
	m    *running
	task *backend.Task
	done chan backend.Report
	// responses has room for more than a window.
	responses chan *infer.Response

	mu    sync.Mutex
	final bool
}

// begin executes a single request on the first instance.
func (m *running) begin(id string) *openRequest {
	m.fixture.t.Helper()
	request := m.fixture.small()
	request.ID = id
	c := &openRequest{m: m, done: make(chan backend.Report, 1), responses: make(chan *infer.Response, 4*process.WindowResponses)}
	c.task = &backend.Task{Context: context.Background(), Request: request, Send: func(r *infer.Response) {
		c.mu.Lock()
		if c.final {
			m.fixture.t.Errorf("%s: got a response behind the last one", id)
		}
		c.final = r.Final
		c.mu.Unlock()
		select {
		case c.responses <- r:
		default:
			m.fixture.t.Errorf("%s: more than %d responses are out", id, cap(c.responses))
		}
	}}
	m.instance().Execute(&backend.Batch{Tasks: []*backend.Task{c.task}, Done: func(_ *backend.Batch, r backend.Report) { c.done <- r }})
	return c
}

// executed waits until the batch is done.
func (c *openRequest) executed() backend.Report {
	c.m.fixture.t.Helper()
	select {
	case report := <-c.done:
		if report.Refused {
			c.m.fixture.t.Fatalf("%s: batch was refused", c.task.Request.ID)
		}
		return report
	case <-time.After(patience):
		c.m.fixture.t.Fatalf("%s: batch was not done within %v; log:\n%s", c.task.Request.ID, patience, c.m.fixture.log)
		return backend.Report{}
	}
}

// next waits for a response, which the caller releases.
func (c *openRequest) next() *infer.Response {
	c.m.fixture.t.Helper()
	select {
	case r := <-c.responses:
		return r
	case <-time.After(patience):
		c.m.fixture.t.Fatalf("%s: no response within %v; log:\n%s", c.task.Request.ID, patience, c.m.fixture.log)
		return nil
	}
}

// rest releases all responses up to the final one. It returns their number and the error of the
// final one.
func (c *openRequest) rest() (n int, err *infer.Error) {
	c.m.fixture.t.Helper()
	for {
		r := c.next()
		if !r.Empty {
			n++
		}
		final := r.Final
		err = r.Err
		r.Release()
		if final {
			return n, err
		}
	}
}

func (r *fixture) startDecoupled(name, source string) *running {
	r.t.Helper()
	m, err := r.open(r.writeModel(name, sendingHead+source), decoupledConfig(name, infer.Uint8))
	if err != nil {
		r.t.Fatalf("Start %s: got error %v\nlog:\n%s", name, err, r.log)
	}
	return m
}

// countingModel sends responses from a thread. The request's id gives their number and size.
const countingModel = `
    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.run, args=(r.get_response_sender(), *map(int, r.request_id().split("x")))).start()

    def run(self, sender, count, size):
        for i in range(count):
            sender.send(answer(i, size))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// TestDecoupledRequestsAreAnsweredByThreads has threads respond to many requests at once, in frames
// and in blocks, on the oldest and the newest Python.
func TestDecoupledRequestsAreAnsweredByThreads(t *testing.T) {
	pythons := testkit.Pythons(t)
	for _, python := range []testkit.Interpreter{pythons[0], pythons[len(pythons)-1]} {
		t.Run(python.String(), func(t *testing.T) {
			r := newFixtureWith(t, python.Path, nil)
			m := r.startDecoupled("counting", countingModel)
			var readers sync.WaitGroup
			for i := range 16 {
				count, size := 50*i, []int{1, 5000, 70_000}[i%3]
				c := m.begin(fmt.Sprintf("%dx%d", count, size))
				if report := c.executed(); report.Err != nil || !report.Executed {
					t.Errorf("got report %+v, want one of an executed batch", report)
				}
				readers.Go(func() {
					for n := 0; ; n++ {
						answer := c.next()
						if answer.Final {
							if n != count || !answer.Empty || answer.Err != nil {
								t.Errorf("%d responses of %d: got %+v at the end", n, count, answer)
							}
							answer.Release()
							return
						}
						if answer.Err != nil || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != size {
							t.Errorf("response %d of %d: got %+v", n, count, answer)
						} else if sum := process.ReadAll(answer); sum != byte(n*size) {
							t.Errorf("response %d of %d has other bytes", n, count)
						}
						answer.Release()
					}
				})
			}
			readers.Wait()
			if held, alive := m.instance().Held(); !alive || held.Descriptors != 0 {
				t.Errorf("%d descriptors are outstanding, want none", held.Descriptors)
			}
		})
	}
}

// TestWindowHoldsResponsesBack holds responses back. The model sends no more than the window
// allows, and continues when half of them have been released.
func TestWindowHoldsResponsesBack(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("window", countingModel)
	for _, test := range []struct {
		id   string
		want int
	}{{"1000x1", process.WindowResponses}, {"100x1000000", process.WindowBytes/1_000_000 + 1}} {
		c := m.begin(test.id)
		c.executed()
		held := make([]*infer.Response, 0, test.want)
		for range test.want {
			held = append(held, c.next())
		}
		// Other requests are not affected.
		if n, err := m.begin("3x1").rest(); n != 3 || err != nil {
			t.Errorf("%s: beside it got %d responses and error %v, want 3", test.id, n, err)
		}
		if n := len(c.responses); n != 0 {
			t.Errorf("%s: got %d responses more than the window has room for", test.id, n)
		}
		half := (len(held) + 1) / 2
		for _, answer := range held[:half] {
			answer.Release()
		}
		for range half {
			held = append(held, c.next())
		}
		if n := len(c.responses); n != 0 {
			t.Errorf("%s: got %d responses more than half a window", test.id, n)
		}
		for _, answer := range held[half:] {
			answer.Release()
		}
		_, err := c.rest()
		if err != nil {
			t.Errorf("%s: got error %v at the end", test.id, err)
		}
	}
}

// TestResponsesLetTheirRequestGo checks that responses that a front end still holds refer neither
// to the task nor, through it, to the RPC.
func TestResponsesLetTheirRequestGo(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("leaving", countingModel)
	collected := make(chan struct{})
	held := func() (held []*infer.Response) {
		c := m.begin("3x70000")
		runtime.AddCleanup(c.task, func(done chan struct{}) { close(done) }, collected)
		c.executed()
		for range 3 {
			held = append(held, c.next())
		}
		if n, err := c.rest(); n != 0 || err != nil {
			t.Errorf("got %d more responses and error %v", n, err)
		}
		return held
	}()
	for range 2 { // the instance still refers to the last few batches
		if n, err := m.begin("1x1").rest(); n != 1 || err != nil {
			t.Errorf("got %d responses and error %v, want 1", n, err)
		}
	}
	testkit.Eventually(t, patience, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
	for _, response := range held {
		response.Release()
	}
}

// TestSlowReaderCostsNoMemory reads a hundred thousand responses and checks that the stub's memory
// does not grow while it waits for the reader.
func TestSlowReaderCostsNoMemory(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("slow", countingModel)
	count := 100_000
	if !testkit.Long() {
		count = 10_000
	}
	c := m.begin(fmt.Sprintf("%dx100", count))
	c.executed()
	for range process.WindowResponses {
		c.next().Release()
	}
	pid := m.pid()
	before := testkit.ResidentBytes(t, pid)
	n, err := c.rest()
	if n != count-process.WindowResponses || err != nil {
		t.Errorf("got %d responses and error %v, want %d", n, err, count-process.WindowResponses)
	}
	if after := testkit.ResidentBytes(t, pid); after > before+16<<20 {
		t.Errorf("stub has %d bytes after %d responses, %d before", after, count, before)
	}
}

// TestDroppedSenderFailsItsRequest checks that a request fails if the model drops its sender before
// the final flag.
func TestDroppedSenderFailsItsRequest(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("forgetful", `
    kept = []
    def execute(self, requests):
        for r in requests:
            if r.request_id() == "keep":
                self.kept.append(r)
            elif r.request_id() == "drop":
                self.kept.clear()
`)
	kept := m.begin("keep")
	kept.executed()
	for _, id := range []string{"forget", "drop"} {
		c := m.begin(id)
		c.executed()
		if n, err := c.rest(); n != 1 || err == nil || err.Code != infer.Internal ||
			err.Message != "Failed to process the request(s) for model 'forgetful_0_0', message: the response sender was dropped before it had sent the final flag." {
			t.Errorf("%s: got %d responses and error %v", id, n, err)
		}
	}
	if _, err := kept.rest(); err == nil {
		t.Error("request that was kept: got no error when it was dropped")
	}
	for _, id := range []string{"forget", "drop", "keep"} {
		var lines []string
		testkit.Within(patience, func() bool {
			lines = nil
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, `"requests":["`+id+`"]`) {
					lines = append(lines, line)
				}
			}
			return len(lines) > 0
		})
		if len(lines) != 1 || !strings.Contains(lines[0], `"level":"error"`) || !strings.Contains(lines[0], "was dropped before it had sent the final flag") ||
			!strings.Contains(lines[0], "forgetful_0_0") {
			t.Errorf("%s: log has lines %q, want one of an error", id, lines)
		}
	}
}

// TestForgottenRequestCounts checks that a batch counts as failed if the model sends no response to
// its request.
func TestForgottenRequestCounts(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.writeModel("silent", sendingHead+`
    def execute(self, requests):
        return [None for r in requests]
`), modelConfig("silent", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	c := m.begin("forget")
	if report := c.executed(); report.Err == nil || !report.Executed {
		t.Errorf("got report %+v, want one of an executed batch with an error", report)
	}
	if n, err := c.rest(); n != 1 || err == nil || !strings.HasSuffix(err.Message, "execute returned no response for this request, and none was sent.") {
		t.Errorf("got %d responses and error %v, want one error", n, err)
	}
	r.logLine("execute returned no response")
	if n := strings.Count(r.log.String(), "execute returned no response"); n != 1 {
		t.Errorf("the log says it %d times, want once", n)
	}
}

// TestDeathFailsOpenRequests kills a stub with open requests and one in execution, which has sent a
// response.
func TestDeathFailsOpenRequests(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("dying", `
    kept = []
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            self.kept.append(sender)
            sender.send(answer(1))
            if r.request_id() == "final":
                sender.send(flags=1)
            if r.request_id() == "die":
                os.kill(os.getpid(), signal.SIGKILL)
`)
	var open []*openRequest
	for range 5 {
		c := m.begin("keep")
		c.executed()
		open = append(open, c)
	}
	final := m.begin("final")
	final.executed()
	if n, err := final.rest(); n != 1 || err != nil {
		t.Errorf("final: got %d responses and error %v, want one", n, err)
	}
	last := m.begin("die")
	if report := last.executed(); report.Err == nil {
		t.Errorf("got report %+v of the batch that killed its stub", report)
	}
	for _, c := range append(open, last) {
		n, err := c.rest()
		// The last request's responses may be lost.
		if n != 2 && (c != last || n != 1) || err == nil || err.Message != "Stub process 'dying_0_0' is not healthy." {
			t.Errorf("%s: got %d responses and error %v, want one and an error", c.task.Request.ID, n, err)
		}
	}
	testkit.Eventually(t, patience, func() bool { return m.instance().Ready(context.Background()) == nil })
	if _, err := m.begin("final").rest(); err != nil {
		t.Errorf("after the death: got error %v", err)
	}
}

// TestCancellationReachesAnOpenRequest cancels requests that execute has left open, and expects the
// model to notice.
func TestCancellationReachesAnOpenRequest(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("waiting", `
    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.run, args=(r, r.get_response_sender())).start()

    def run(self, request, sender):
        while not (sender.is_cancelled() and request.is_cancelled()):
            time.sleep(0.001)
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED)), 1)
`)
	var all []*openRequest
	for range 10 {
		c := m.begin("")
		c.executed()
		all = append(all, c)
	}
	for _, c := range all {
		began := time.Now()
		m.instance().Cancel(c.task)
		if _, err := c.rest(); err == nil || err.Code != infer.Cancelled || err.Message != "gone" {
			t.Errorf("got error %v, want the model's", err)
		}
		t.Logf("the model answered %v after the cancellation", time.Since(began))
		m.instance().Cancel(c.task) // already answered: no effect
	}
}

// TestSendersAnswerLaterWithoutDecoupling checks that an instance accepts the next batch while a
// sender responds later, and that a model cannot both send and return a response.
func TestSendersAnswerLaterWithoutDecoupling(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.writeModel("later", sendingHead+`
    waiting = []
    def execute(self, requests):
        for r in requests:
            if r.request_id() == "wait":
                self.waiting.append(r)
                return None
            if r.request_id() == "both":
                r.get_response_sender().send(answer(1))
                return [answer(2)]
        for r in self.waiting:
            r.get_response_sender().send(answer(7), 1)
        return [answer(3) for _ in requests]
`), modelConfig("later", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	waiting := m.begin("wait")
	waiting.executed()
	both := m.begin("both")
	if report := both.executed(); report.Err == nil {
		t.Errorf("got report %+v of a batch that failed", report)
	}
	if n, err := both.rest(); n != 2 || err == nil || err.Message !=
		"Failed to process the request(s) for model 'later_0_0', message: Unable to send response. Non-decoupled model cannot send more than one response." {
		t.Errorf("both: got %d responses and error %v", n, err)
	}
	if n, err := m.begin("go").rest(); n != 1 || err != nil {
		t.Errorf("go: got %d responses and error %v, want one", n, err)
	}
	if n, err := waiting.rest(); n != 1 || err != nil {
		t.Errorf("wait: got %d responses and error %v, want one", n, err)
	}
}

// TestReleasedRequestsComeBack checks that a request released for rescheduling is returned.
func TestReleasedRequestsComeBack(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("again", `
    def execute(self, requests):
        for r in requests:
            r.get_response_sender().send(answer(1))
            if r.request_id() == "again":
                r.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                r.get_response_sender().send(flags=1)
`)
	c := m.begin("again")
	report := c.executed()
	if len(report.Rescheduled) != 1 || report.Rescheduled[0] != c.task || report.Err != nil {
		t.Fatalf("got report %+v, want the request back", report)
	}
	c.next().Release()
	if len(c.responses) != 0 {
		t.Error("got more than the response that was sent before")
	}
	if _, err := m.begin("").rest(); err != nil {
		t.Errorf("next request: got error %v", err)
	}
}

// TestCloseWaitsForOpenRequests closes a model whose threads are still sending.
func TestCloseWaitsForOpenRequests(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("closing", countingModel)
	c := m.begin("1000x10")
	c.executed()
	closed := make(chan struct{})
	go func() {
		m.close()
		close(closed)
	}()
	if n, err := c.rest(); n != 1000 || err != nil {
		t.Errorf("got %d responses and error %v, want 1000", n, err)
	}
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("model was not closed")
	}
}

// TestBatchNumbersPassThirtyTwoBits executes batches whose numbers pass 2^32. Handles contain only
// the low half.
func TestBatchNumbersPassThirtyTwoBits(t *testing.T) {
	r := newFixture(t, nil)
	decoupled := r.startDecoupled("wrapping", `
    def execute(self, requests):
        for r in requests:
            r.get_response_sender().send(answer(5), 1)
`)
	plain := r.in(t).start("identity", infer.Uint8)
	for _, m := range []*running{decoupled, plain} {
		m.instance().NumberBatches(1<<32 - 3)
		for range 6 {
			if n, err := m.begin("good").rest(); n != 1 || err != nil {
				t.Errorf("got %d responses and error %v, want one", n, err)
			}
		}
		if n := r.counts.of(&r.counts.lost); n != 0 {
			t.Errorf("%d stubs were lost, want none", n)
		}
	}
}

// TestAsyncExecutionsOverlapAsConfigured checks that calls of an asynchronous execute overlap as
// configured, and that invalid values of the parameter are refused.
func TestAsyncExecutionsOverlapAsConfigured(t *testing.T) {
	r := newFixture(t, nil)
	source := sendingHead + `
    inside = most = 0
    async def execute(self, requests):
        self.inside += 1
        self.most = max(self.most, self.inside)
        while self.most < int(requests[0].request_id()):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05) # so that one more than may be could come
        self.inside -= 1
        return [answer(self.most) for _ in requests]
`
	for value, want := range map[string]byte{"": 1, "4": 4} {
		config := modelConfig("overlapping", 1, infer.Uint8)
		if value != "" {
			config.Parameters = map[string]*kserve.ModelParameter{"ASYNC_EXECUTE_OVERLAP": {StringValue: value}}
		}
		m, err := r.open(r.writeModel("overlapping", source), config)
		if err != nil {
			t.Fatal(err)
		}
		var all []*openRequest
		for range 8 {
			c := m.begin(fmt.Sprint(want)) // waits for that overlap
			c.executed()
			all = append(all, c)
		}
		var most byte
		for _, c := range all {
			answer := c.next()
			if answer.Err != nil || !answer.Final {
				t.Fatalf("got %+v, want a last response", answer)
			}
			most = max(most, process.ReadAll(answer))
			answer.Release()
		}
		if most != want {
			t.Errorf("parameter %q: %d calls overlapped, want %d", value, most, want)
		}
		m.close()
	}
	for _, value := range []string{"0", "-1", "many", "1.5", "5000"} {
		config := modelConfig("overlapping", 1, infer.Uint8)
		config.Parameters = map[string]*kserve.ModelParameter{"ASYNC_EXECUTE_OVERLAP": {StringValue: value}}
		_, err := r.open(r.writeModel("overlapping", source), config)
		if want := fmt.Sprintf("parameter 'ASYNC_EXECUTE_OVERLAP' of model 'overlapping' is %q, want a number from 1 to 4096", value); err == nil || err.Error() != want {
			t.Errorf("parameter %q: got error %v, want %q", value, err, want)
		}
	}
}
