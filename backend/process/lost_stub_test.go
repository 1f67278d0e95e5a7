package process_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// lastCause waits for a number of losses and returns the latest cause.
func (r *fixture) lastCause(losses int) string {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool { return r.counts.of(&r.counts.lost) >= losses })
	r.counts.mu.Lock()
	defer r.counts.mu.Unlock()
	return r.counts.causes[len(r.counts.causes)-1]
}

// endsAs is a model that ends its process as its request's id says.
const endsAs = `
import os, signal, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        how = requests[0].request_id()
        if how == "confused":
            os._exit(76)
        if how == "hangs":
            time.sleep(600)
        if how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

// TestLostBeforeAnAnswer loses a stub six times before its first response. The instance becomes
// hopeless unless the cause is a lack of memory.
func TestLostBeforeAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name     string
		lose     func(*running)
		cause    string
		hopeless bool
	}{
		{"killed", (*running).kill, "exit", true},
		{"lies at once", func(m *running) { m.wantError("", "Stub process 'go_0_0' is not healthy.") }, "protocol", true},
		{"lacks memory", (*running).kill, "memory", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixtureWith(t, "", nil)
			r.host = &callHost{}
			m, err := r.openProgram(test.name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range process.HopelessLosses + 1 {
				testkit.Eventually(t, patience, func() bool { return m.ready() == nil })
				test.lose(m)
				if got := r.lastCause(i + 1); got != test.cause {
					t.Errorf("loss %d: got cause %s, want %s", i, got, test.cause)
				}
			}
			m.events.mu.Lock()
			defer m.events.mu.Unlock()
			if (m.events.hopeless > 0) != test.hopeless {
				t.Errorf("the instance was hopeless %d times, want hopeless %t", m.events.hopeless, test.hopeless)
			}
		})
	}
}

// TestLostAfterAnswersRestartsAtOnce checks that a stub that has responded before its loss is
// restarted at once, every time.
func TestLostAfterAnswersRestartsAtOnce(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.ExecuteTimeout = 500 * time.Millisecond })
	m, err := r.open(r.writeModel("ends", endsAs), modelConfig("ends", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	const unhealthy = "Stub process 'ends_0_0' is not healthy."
	losses := 0
	for range 4 {
		for how, cause := range map[string]string{"confused": "server", "hangs": "timeout", "stops": "timeout"} {
			m.wantGood()
			if cause == "timeout" && losses > 6 {
				continue // each takes the full timeout
			}
			m.wantError(how, unhealthy)
			losses++
			if got := r.lastCause(losses); got != cause {
				t.Errorf("%s: got cause %s, want %s", how, got, cause)
			}
		}
	}
	m.wantGood()
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	if m.events.hopeless > 0 || strings.Count(r.log.String(), `"wait":"0s"`) != losses {
		t.Errorf("of %d losses of stubs that had answered: hopeless %d times, back at once %d times",
			losses, m.events.hopeless, strings.Count(r.log.String(), `"wait":"0s"`))
	}
}

// TestInsideTwoLostLives puts a request into the rings of two stubs that are killed before they
// take it. The first loss returns the request, the second one fails it.
func TestInsideTwoLostLives(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.wantGood()
	answers := make(chan *infer.Response, 1)
	reports := make(chan backend.Report, 1)
	task := &backend.Task{
		Context: context.Background(), Request: r.small(),
		Send: func(response *infer.Response) { answers <- response },
	}
	for turn := 1; ; turn++ {
		testkit.Eventually(t, patience, func() bool { return m.ready() == nil })
		pid := m.pid()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, func() bool { // until then, it might still read the ring
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && strings.Contains(string(stat), ") T ")
		})
		m.instance().Execute(&backend.Batch{Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) { reports <- report }})
		m.kill()
		report := <-reports
		if turn == 1 && report.Refused && task.Lost == 1 {
			continue
		}
		if turn == 2 && !report.Refused && report.Err != nil {
			break
		}
		t.Fatalf("after %d lost stubs: got report %+v, inside %d of them", turn, report, task.Lost)
	}
	response := <-answers
	if response.Err == nil || response.Err.Message != "Stub process 'identity_0_0' is not healthy." {
		t.Errorf("got error %v, want that the stub is not healthy", response.Err)
	}
	m.wantGood()
}

// TestWarmUpsAreNoAnswers checks that a stub that has only been warmed up counts as not having
// responded.
func TestWarmUpsAreNoAnswers(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	for losses, trial := range []bool{true, false} {
		done := make(chan struct{})
		m.instance().Execute(&backend.Batch{
			Trial: trial, Done: func(*backend.Batch, backend.Report) {},
			Tasks: []*backend.Task{{Context: context.Background(), Request: r.small(), Send: func(response *infer.Response) {
				response.Release()
				close(done)
			}}},
		})
		<-done
		m.kill()
		r.lastCause(losses + 1)
		testkit.Eventually(t, patience, func() bool { return m.ready() == nil })
		if at := strings.Count(r.log.String(), `"wait":"0s"`); (at == 0) != trial {
			t.Errorf("after a batch with Trial %t: %d stubs were restarted at once", trial, at)
		}
	}
}

// TestCloseOfAStubThatIsStopped closes a model without time limits whose stub is stopped in
// execute. When Close's context ends, the process is killed and the request fails.
func TestCloseOfAStubThatIsStopped(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.writeModel("stops", endsAs), modelConfig("stops", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	m.wantGood()
	pid := m.pid()
	answered := make(chan *infer.Response, 1)
	request := r.small()
	request.ID = "stops"
	m.instance().Execute(&backend.Batch{
		Done: func(*backend.Batch, backend.Report) {},
		Tasks: []*backend.Task{{
			Context: context.Background(), Request: request, Send: func(response *infer.Response) { answered <- response },
		}},
	})
	testkit.Eventually(t, patience, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := m.model.Close(ctx); err == nil || !strings.Contains(err.Error(), "its stubs were killed") {
		t.Errorf("Close: got error %v, want that the stub was killed", err)
	}
	if response := <-answered; response.Err == nil || response.Err.Message != "Stub process 'stops_0_0' is not healthy." {
		t.Errorf("got error %v, want that the stub is not healthy", response.Err)
	}
}

// TestLastFramesOfAStubAreRead has a stub respond and exit while the reader of its ring is busy.
// Its last frames are handled before the end of its life fails other requests.
func TestLastFramesOfAStubAreRead(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("last_words", `
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(answer(1))
        sender.send(answer(2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        os.kill(os.getpid(), signal.SIGKILL)
`)
	in := m.instance()
	responses, done := make(chan *infer.Response, 8), make(chan backend.Report, 1)
	in.Execute(&backend.Batch{
		Tasks: []*backend.Task{{Context: t.Context(), Request: r.small(), Send: func(response *infer.Response) {
			if len(responses) == 0 {
				testkit.Within(patience, func() bool { return m.ready() != nil }) // the life is ending
			}
			responses <- response
		}}},
		Done: func(_ *backend.Batch, report backend.Report) { done <- report },
	})
	if report := <-done; report.Err == nil {
		t.Error("the batch has no error, though its stub has not returned from it")
	}
	if len(responses) != 2 {
		t.Fatalf("got %d responses, want 2", len(responses))
	}
	for want := range 2 {
		response := <-responses
		if response.Err != nil || len(response.Outputs) != 1 || response.Outputs[0].Data[0] != byte(want+1) || response.Final != (want == 1) {
			t.Errorf("response %d: got %+v (error %v)", want+1, response, response.Err)
		}
		response.Release()
	}
}

// TestAnAnswerInTheRingIsInTime lets the execution timeout pass while the response is in the ring
// and its reader is busy. The stub is not killed.
func TestAnAnswerInTheRingIsInTime(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("in_time", `
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(answer(1))
        sender.send(answer(2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`)
	const limit = 100 * time.Millisecond
	m.instance().LimitExecution(limit)
	in := m.instance()
	pid := m.pid()
	done := make(chan backend.Report, 1)
	in.Execute(&backend.Batch{
		Tasks: []*backend.Task{{Context: t.Context(), Request: r.small(), Send: func(response *infer.Response) {
			if !response.Final {
				testkit.Within(4*limit, func() bool { return m.ready() != nil })
			}
			response.Release()
		}}},
		Done: func(_ *backend.Batch, report backend.Report) { done <- report },
	})
	if report := <-done; report.Err != nil || m.pid() != pid {
		t.Errorf("got report %+v, want one without error and the same stub", report)
	}
}
