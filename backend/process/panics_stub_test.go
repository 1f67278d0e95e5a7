package process_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// hooked makes the log call hook.
func hooked(hook zerolog.HookFunc) func(*process.Environment) {
	return func(e *process.Environment) { e.Log = e.Log.Hook(hook) }
}

// TestAPanicWhileABatchIsSent checks that the batch's requests fail, nothing stays lent, and the
// same process executes the next batch.
func TestAPanicWhileABatchIsSent(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.mustInfer(r.small()).Release()
	pid := m.pid()
	before := testkit.Panics(panics.Request)

	var none *shm.Block // using it panics, like a bug in the server
	bad := r.small()
	bad.Inputs[0] = infer.Tensor{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1, 8192}, Data: make([]byte, 8192), Memory: none}
	large := r.tensor("IN0", infer.Uint8, []int64{1, 8192}, make([]byte, 8192))
	responses, report := m.infer(&infer.Request{Inputs: []infer.Tensor{large}}, bad)
	large.Release()
	for i, response := range responses {
		if response.Err == nil || response.Err.Code != infer.Internal || response.Err.Message != "internal error" {
			t.Errorf("request %d: got %v, want an INTERNAL error", i, response.Err)
		}
	}
	if report.Err == nil || report.Executed {
		t.Errorf("got the report %+v, want an error and no execution", report)
	}
	if n := testkit.Panics(panics.Request); n != before+1 {
		t.Errorf("got %d panics, want 1", n-before)
	}
	if held, alive := m.instance().Held(); !alive || held.Loans != 0 {
		t.Errorf("got %d loans, want none", held.Loans)
	}
	m.mustInfer(r.small()).Release()
	if m.pid() != pid {
		t.Error("the process was exchanged, want the same one")
	}
}

// TestAPanicOfSendOrDoneHarmsNoOtherRequest checks that a panic of a Sender or of Done does not
// affect the batch's other requests or the next batch.
func TestAPanicOfSendOrDoneHarmsNoOtherRequest(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.mustInfer(r.small()).Release()
	pid := m.pid()
	answered := make(chan *infer.Response, 1)
	batch := &backend.Batch{
		Tasks: []*backend.Task{
			{Context: context.Background(), Request: r.small(), Send: func(response *infer.Response) {
				response.Release()
				panic("a bug of a Sender")
			}},
			{Context: context.Background(), Request: r.small(), Send: func(response *infer.Response) { answered <- response }},
		},
		Done: func(*backend.Batch, backend.Report) { panic("a bug of a scheduler") },
	}
	before := testkit.Panics(panics.Request)
	m.instance().Execute(batch)
	response := <-answered
	if response.Err != nil {
		t.Errorf("got %v for the second request, want its answer", response.Err)
	}
	response.Release()
	m.mustInfer(r.small()).Release()
	if m.pid() != pid {
		t.Error("the process was exchanged, want the same one")
	}
	if n := testkit.Panics(panics.Request); n != before+2 {
		t.Errorf("got %d panics, want 2", n-before)
	}
}

// talks is a model that logs or prints its input.
const talks = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            text = bytes(pb_utils.get_input_tensor_by_name(request, "IN0").as_numpy()).decode()
            if text.startswith("log"):
                pb_utils.Logger.log_info(text)
            elif text.startswith("say"):
                print(text, flush=True)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", pb_utils.get_input_tensor_by_name(r, "IN0").as_numpy())]) for r in requests]
`

// TestAPanicOfAReader checks that a panic in the reader of a stub's frames ends only that life, and
// a panic in the reader of its output only that output.
func TestAPanicOfAReader(t *testing.T) {
	var armed atomic.Bool
	tagged := func(c *python.Config) { c.TaggedOutput = true } // sends output lines to the log
	r := newFixtureIn(t, testkit.Python(t).Path, tagged, shm.PoolConfig{}, hooked(func(_ *zerolog.Event, _ zerolog.Level, message string) {
		if strings.Contains(message, "trap") && !strings.Contains(message, "internal error") && armed.Swap(false) {
			panic("a bug in the log")
		}
	}))
	m, err := r.open(r.writeModel("talks", talks), modelConfig("talks", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) *infer.Request {
		return &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(len(s))}, []byte(s))}}
	}
	m.mustInfer(text("log nothing")).Release()
	first := m.pid()

	before := testkit.Panics(panics.Life)
	armed.Store(true)
	responses, _ := m.infer(text("log trap"))
	if responses[0].Err == nil || responses[0].Err.Code != infer.Internal {
		t.Errorf("got %v from the life whose reader panicked, want an INTERNAL error", responses[0].Err)
	}
	responses[0].Release()
	m.mustInfer(text("quiet")).Release()
	second := m.pid()
	if second == first {
		t.Error("the life goes on after its reader has panicked, want another one")
	}
	armed.Store(true)
	m.mustInfer(text("say trap")).Release()
	testkit.Eventually(t, patience, func() bool { return testkit.Panics(panics.Life) == before+2 })
	m.mustInfer(text("quiet")).Release()
	if m.pid() != second {
		t.Error("the life ended with its output, want it to go on")
	}
}

// brokenHost panics on every request of a model.
type brokenHost struct{ processtest.Host }

func (*brokenHost) Target(string, int64) (backend.Target, error) {
	return &backendtest.Target{Run: func(context.Context, *infer.Request, infer.Sender) error { panic("a bug above") }}, nil
}

func (*brokenHost) Load(context.Context, string, string, map[string][]byte) error {
	panic("a bug above")
}

// TestAPanicOfTheHost checks that a model gets an error if the host panics.
func TestAPanicOfTheHost(t *testing.T) {
	r := newFixture(t, nil)
	r.host = &brokenHost{}
	m, err := r.open(r.writeModel("asks_much", `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            said = []
            response = pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUT0"],
                inputs=[pb_utils.Tensor("IN0", np.zeros(4, np.uint8))]).exec()
            said.append(response.error().message() if response.has_error() else "nothing")
            try:
                pb_utils.load_model("other")
            except Exception as error:
                said.append(str(error))
            text = np.frombuffer("|".join(said).encode(), np.uint8).reshape(1, -1)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", text)]))
        return answers
`), modelConfig("asks_much", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		response := m.mustInfer(r.small())
		if got := string(response.Outputs[0].Data); strings.Count(got, "internal error") != 2 {
			t.Errorf("the model got %q, want two internal errors", got)
		}
		response.Release()
	}
}

// TestAPanicUnderTheLockOfAnInstance checks that a panic while a stub's frame is handled, and
// another one at the end of that life, leave the lock free and no request unanswered.
func TestAPanicUnderTheLockOfAnInstance(t *testing.T) {
	var in atomic.Pointer[process.Instance]
	r := newFixtureIn(t, testkit.Python(t).Path, nil, shm.PoolConfig{}, hooked(func(_ *zerolog.Event, _ zerolog.Level, message string) {
		if in := in.Load(); in != nil && message == "log trap" {
			in.SpoilTimer()
		}
	}))
	m, err := r.open(r.writeModel("talks", talks), modelConfig("talks", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	in.Store(m.instance())
	text := func(s string) *infer.Request {
		return &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(len(s))}, []byte(s))}}
	}
	m.mustInfer(text("quiet")).Release()
	first, before := m.pid(), testkit.Panics(panics.Life)
	o := waitFor(t, handOver(m.instance(), text("log trap")))
	if o.answer == nil || o.answer.Err == nil || o.answer.Err.Code != infer.Internal || o.report.Err == nil {
		t.Errorf("got %+v, want an INTERNAL error", o)
	}
	m.mustInfer(text("quiet")).Release()
	if m.pid() == first {
		t.Error("the life goes on after its reader has panicked, want another one")
	}
	if n := testkit.Panics(panics.Life); n != before+2 {
		t.Errorf("got %d panics, want that of the reader and that of the end", n-before)
	}
}

// TestAPanicOfTheEndOfALife checks that each of the stub's requests is still answered once, and
// that the instance is restarted.
func TestAPanicOfTheEndOfALife(t *testing.T) {
	r := newFixture(t, nil)
	m := r.startDecoupled("stays", `
    def execute(self, requests):
        for request in requests:
            if request.request_id() == "open":
                self.sender = request.get_response_sender()
            else:
                threading.Event().wait()
`)
	open := m.begin("open")
	open.executed()
	stays := m.begin("stays")
	ahead := m.begin("ahead")
	finish := m.instance().SpoilEnd()
	m.kill()
	for _, c := range []*openRequest{open, stays} {
		if n, err := c.rest(); n != 1 || err == nil || err.Code != infer.Internal {
			t.Errorf("%s: got %d responses, the last of them %v, want an INTERNAL error alone", c.task.Request.ID, n, err)
		}
	}
	if report := stays.executed(); report.Err == nil {
		t.Errorf("got the report %+v, want an error", report)
	}
	select {
	case <-ahead.done: // returned or answered
	case <-time.After(patience):
		t.Error("the batch ahead was not done")
	}
	testkit.Eventually(t, patience, func() bool { return m.ready() == nil })
	finish()
}

// TestAPanicOfExecuteAnswersOnce checks that Execute never panics once it has accepted a batch.
// Otherwise its caller would answer the batch again.
func TestAPanicOfExecuteAnswersOnce(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.mustInfer(r.small()).Release()
	in := m.instance()
	pid := m.pid()
	for _, broken := range []bool{false, true} {
		if broken {
			in.SpoilTimer()
		}
		var none *shm.Block // using it panics
		bad := &infer.Request{Inputs: []infer.Tensor{{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1, 8192}, Data: make([]byte, 8192), Memory: none}}}
		var done, sent atomic.Int32
		batch := &backend.Batch{
			Tasks: []*backend.Task{{Context: context.Background(), Request: bad, Send: func(*infer.Response) {
				sent.Add(1)
				panic("a bug of a Sender")
			}}},
			Done: func(*backend.Batch, backend.Report) {
				done.Add(1)
				panic("a bug of a scheduler")
			},
		}
		if err := panics.Run(zerolog.Nop(), panics.Scheduler, func() error { in.Execute(batch); return nil }); err != nil {
			t.Errorf("broken %v: Execute panicked", broken)
		}
		if !testkit.Within(patience, func() bool { return done.Load() > 0 && sent.Load() > 0 }) || done.Load() != 1 || sent.Load() != 1 {
			t.Errorf("broken %v: got %d times Done and %d answers, want 1 and 1", broken, done.Load(), sent.Load())
		}
	}
	testkit.Eventually(t, patience, func() bool { return m.pid() != pid })
	m.mustInfer(r.small()).Release()
}
