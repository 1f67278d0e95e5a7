package process_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// wantGood executes a request that no model in testdata misbehaves on.
func (m *running) wantGood() {
	m.fixture.t.Helper()
	request := m.fixture.small()
	request.ID = "good"
	response := m.mustInfer(request)
	if len(response.Outputs) != 1 || string(response.Outputs[0].Data) != "\x01\x02\x03\x04" {
		m.fixture.t.Errorf("good request: got outputs %+v, want its input", response.Outputs)
	}
	response.Release()
}

// wantError executes a request with an input in a block and checks the error's text.
func (m *running) wantError(id, text string) {
	m.fixture.t.Helper()
	request := &infer.Request{ID: id, Inputs: []infer.Tensor{m.fixture.tensor("IN0", infer.Uint8, []int64{1, 200_000}, testkit.Pattern(200_000, 1))}}
	responses, report := m.infer(request)
	releaseInputs(request)
	if responses[0].Err == nil || responses[0].Err.Message != text || responses[0].Err.Code != infer.Internal || !responses[0].Final {
		m.fixture.t.Errorf("request %q: got response %+v (error %v), want the error %q", id, responses[0], responses[0].Err, text)
	}
	if report.Err == nil {
		m.fixture.t.Errorf("request %q: got a report without error", id)
	}
	responses[0].Release()
}

func wantStartError(t *testing.T, err error, text string) {
	t.Helper()
	var own *infer.Error
	if !errors.As(err, &own) || own.Code != infer.Internal || !strings.HasPrefix(own.Message, text) {
		t.Errorf("Start: got error %v, want an internal error %q", err, text)
	}
}

// TestModelsThatDoNotStart checks Triton's error texts for models that fail to start.
func TestModelsThatDoNotStart(t *testing.T) {
	testkit.Story(t)
	r := newFixture(t, nil)
	hurried := newFixture(t, func(c *python.Config) { c.InitializeTimeout = 2 * time.Second })
	for _, test := range []struct{ model, want, log string }{
		{"dies_in_import", "Stub process 'dies_in_import_0_", "ended by signal 9 (SIGKILL)"},
		{"dies_in_initialize", "Stub process 'dies_in_initialize_0_", "process exited with code 0"},
		{"raises_in_import", "ValueError: not today\n\nAt:\n  ", "Failed to initialize Python stub: ValueError: not today"},
		{"raises_in_initialize", "ValueError: not today\n\nAt:\n  ", "Failed to initialize Python stub: ValueError: not today"},
		{"hangs_in_initialize", "Stub process 'hangs_in_initialize_0_", "process did not initialize its model within 2s"},
	} {
		t.Run(test.model, func(t *testing.T) {
			r := r.in(t)
			if test.model == "hangs_in_initialize" {
				r = hurried.in(t)
			}
			for range 2 { // a failed start leaves nothing that blocks the next
				_, err := r.open(r.copyModel(test.model), modelConfig(test.model, 2, infer.Uint8))
				wantStartError(t, err, test.want)
			}
			if !strings.Contains(r.log.String(), test.log) {
				t.Errorf("log does not say %q", test.log)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		dir := t.TempDir()
		config := modelConfig("missing", 1, infer.Uint8)
		config.DefaultModelFilename = "other.py"
		_, err := r.in(t).open(dir, config)
		wantStartError(t, err, "Stub process 'missing_0_0' is not healthy. Python model file not found in 'missing/1/other.py'")
	})
	t.Run("cancelled", func(t *testing.T) {
		r := r.in(t)
		model, err := r.backend.Open(envOf(r.copyModel("hangs_in_initialize"), modelConfig("cancelled", 3, infer.Uint8)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := model.Start(ctx, modelConfig("cancelled", 3, infer.Uint8), []byte("{}"), &fakeEvents{}); err == nil {
			t.Error("Start: got no error, want that of the context")
		}
	})
}

// TestDeathsInExecuteAnswerTheirRequest checks that the request in execution fails, and that a new
// stub serves the next one.
func TestDeathsInExecuteAnswerTheirRequest(t *testing.T) {
	r := newFixture(t, nil)
	for id, log := range map[string]string{
		"SIGKILL": "process was ended by signal 9 (SIGKILL)", "SIGSEGV": "process was ended by signal 11 (SIGSEGV)",
		"SIGABRT": "process was ended by signal 6 (SIGABRT)", "exit 0": "process exited with code 0", "exit 3": "process exited with code 3",
	} {
		t.Run(id, func(t *testing.T) {
			r := r.in(t)
			m := r.start("dies_in_execute", infer.Uint8)
			defer m.close()
			for range 3 {
				m.wantGood()
				m.wantError(id, "Stub process 'dies_in_execute_0_0' is not healthy.")
			}
			m.wantGood()
			for _, want := range []string{log, "process lost, restarting"} {
				if !strings.Contains(r.log.String(), want) {
					t.Errorf("log does not say %q", want)
				}
			}
			var ups, downs int
			if !testkit.Within(patience, func() bool { // a life accepts batches shortly before it is reported
				ups, downs = m.events.counted()
				return ups >= 4
			}) || ups != 4 || downs != 3 {
				t.Errorf("instance came up %d times and went down %d times, want 4 and 3", ups, downs)
			}
		})
	}
	if !strings.Contains(r.log.String(), "last words") {
		t.Error("log does not have what the stub printed last")
	}
}

func TestRaisingModelKeepsItsStub(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("raises_in_execute", infer.Uint8)
	pid := m.pid()
	for range 3 {
		request := r.small()
		responses, report := m.infer(request)
		err := responses[0].Err
		const prefix = "Failed to process the request(s) for model 'raises_in_execute_0_0', message: ValueError: not today\n\nAt:\n  "
		if err == nil || err.Code != infer.Internal || !strings.HasPrefix(err.Message, prefix) || !strings.HasSuffix(err.Message, "model.py(9): execute\n") {
			t.Errorf("got error %v, want one that begins with %q", err, prefix)
		}
		if report.Err == nil || !report.Executed {
			t.Errorf("got report %+v, want one of an executed batch with an error", report)
		}
		m.wantGood()
	}
	if now := m.pid(); now != pid {
		t.Errorf("stub is %d, want the first one, %d", now, pid)
	}
	m.close()

	m = r.start("raises_in_finalize", infer.Uint8)
	m.wantGood()
	m.close()
	if n := strings.Count(r.log.String(), `"message":"ValueError: not today\n\nAt:`); n != 1 {
		t.Errorf("the log has the exception of finalize %d times, want once", n)
	}
}

// TestHangingStubsAreKilledAndReplaced checks that a stub whose execute or finalize does not return
// is killed, and that the next stub serves.
func TestHangingStubsAreKilledAndReplaced(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.FinalizeTimeout = 500 * time.Millisecond })
	for _, where := range []string{"Python", "a lock", "C with the GIL"} {
		t.Run(where, func(t *testing.T) {
			m := r.in(t).start("hangs_in_execute", infer.Uint8)
			defer m.close()
			m.wantGood()
			m.instance().LimitExecution(500 * time.Millisecond)
			m.wantError(where, "Stub process 'hangs_in_execute_0_0' is not healthy.")
			m.wantGood()
		})
	}
	if want := "execute did not return within 500ms, process is killed"; !strings.Contains(r.log.String(), want) {
		t.Errorf("log does not say %q", want)
	}
	t.Run("finalize", func(t *testing.T) {
		m := r.in(t).start("hangs_in_finalize", infer.Uint8)
		m.wantGood()
		m.close()
		if want := "finalize did not return in time, killing the process"; !strings.Contains(r.log.String(), want) {
			t.Errorf("log does not say %q", want)
		}
	})
}

// TestCloseOfAModelThatHangs closes a model without time limits. When Close's context ends, the
// process is killed.
func TestCloseOfAModelThatHangs(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.FinalizeTimeout = 0 })
	m := r.start("hangs_in_finalize", infer.Uint8)
	m.wantGood()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := m.model.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: got error %v, want that of the context", err)
	}
}

func TestMuchOutputIsLimited(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("prints_much", infer.Uint8)
	for range 2 {
		m.wantGood()
	}
	m.close()
	log := r.log.String() + r.printed[0].String() + r.printed[1].String()
	if n := len(log); n > 8<<20 {
		t.Errorf("log has %d bytes, want it to be limited", n)
	}
	for _, want := range []string{"\nline 1\n", `"message":"message 0"`, "output of the model was dropped"} {
		if !strings.Contains(log, want) {
			t.Errorf("log does not have %q", want)
		}
	}
	for line := range strings.Lines(log) {
		if len(line) > 2*output.MaxLine {
			t.Errorf("log has a line of %d bytes", len(line))
		}
	}
}

// TestChildrenEndWithTheirStub checks that a model's child processes end with its stub, although
// they hold all its descriptors.
func TestChildrenEndWithTheirStub(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("forks_and_lingers", infer.Uint8)
	m.wantGood()
	var children []int
	for _, id := range []string{"a", "b"} {
		request := r.small()
		request.ID = id
		response := m.mustInfer(request)
		for b := response.Outputs[0].Data; len(b) > 0; b = b[8:] {
			children = append(children, int(binary.LittleEndian.Uint64(b)))
		}
		response.Release()
	}
	if len(children) != 4 {
		t.Fatalf("got children %v, want 4", children)
	}
	m.wantError("die", "Stub process 'forks_and_lingers_0_0' is not healthy.")
	m.wantGood()
	request := r.small()
	response := m.mustInfer(request)
	for b := response.Outputs[0].Data; len(b) > 0; b = b[8:] {
		children = append(children, int(binary.LittleEndian.Uint64(b)))
	}
	response.Release()
	m.close()
	for _, pid := range children {
		testkit.Eventually(t, patience, func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	}
}

func TestNonsenseResponsesBecomeErrors(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("returns_nonsense", infer.Uint8)
	const prefix = "Failed to process the request(s) for model 'returns_nonsense_0_0', message: "
	const number = "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, and InferenceResponse(s) size is:"
	for _, test := range [][2]string{
		{"5", "Expected a list in the execute return, found type '<class 'int'>'."},
		{"()", "Expected a list in the execute return, found type '<class 'tuple'>'."},
		{"{}", "Expected a list in the execute return, found type '<class 'dict'>'."},
		{"np.zeros(3)", "Expected a list in the execute return, found type '<class 'numpy.ndarray'>'."},
		{"(r for r in [])", "Expected a list in the execute return, found type '<class 'generator'>'."},
		{"pb_utils.InferenceResponse([])", "Expected a list in the execute return, found type '<class 'c_python_backend_utils.InferenceResponse'>'."},
		{"[]", number + "0\n"},
		{"[None, None, None]", number + "3\n"},
		{"['x']", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."},
		{"requests", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'c_python_backend_utils.InferenceRequest'>'."},
		{"[pb_utils.Tensor('OUT0', np.zeros(1))]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'c_python_backend_utils.Tensor'>'."},
	} {
		if test[0] == "(r for r in [])" && testkit.Python(t).Minor < 12 {
			continue // older asyncio takes generators for coroutines
		}
		m.wantError(test[0], prefix+test[1])
		m.wantGood()
	}
	for _, nothing := range []string{"None", "[None]"} {
		request := r.small()
		request.ID = nothing
		responses, _ := m.infer(request)
		if err := responses[0].Err; err == nil || err.Code != infer.Internal {
			t.Errorf("%s: got error %v, want an internal one", nothing, err)
		}
		m.wantGood()
	}
	// Outputs that were not requested are dropped. Unusual types and shapes are passed on.
	request := r.small()
	request.ID = "[pb_utils.InferenceResponse([pb_utils.Tensor('OTHER', np.zeros(1)), pb_utils.Tensor('OUT0', np.zeros((0, 7), np.float16))])]"
	response := m.mustInfer(request)
	if len(response.Outputs) != 1 || response.Outputs[0].DataType != infer.FP16 || infer.ShapeString(response.Outputs[0].Shape) != "[0,7]" {
		t.Errorf("got outputs %+v, want OUT0 alone", response.Outputs)
	}
	response.Release()
	request.ID = "[pb_utils.InferenceResponse(error=pb_utils.TritonError('mine', pb_utils.TritonError.ALREADY_EXISTS))]"
	responses, report := m.infer(request)
	if err := responses[0].Err; err == nil || err.Code != infer.AlreadyExists || err.Message != "mine" || report.Err != nil {
		t.Errorf("got error %v and report %+v, want the model's own error of one request", err, report)
	}
	if n := r.counts.of(&r.counts.lost); n != 0 {
		t.Errorf("%d stubs were lost, want none", n)
	}
}

// TestUnreachableStubsAreReplaced checks that a stub that can no longer be reached is replaced,
// whether it ends by itself or not.
func TestUnreachableStubsAreReplaced(t *testing.T) {
	r := newFixture(t, nil)
	t.Run("return", func(t *testing.T) {
		m := r.in(t).start("closes_descriptors", infer.Uint8)
		defer m.close()
		for range 5 {
			m.wantGoodAtLast()
			responses, _ := m.infer(r.small()) // its response may just have arrived
			responses[0].Release()
		}
		m.wantGoodAtLast()
		if r.counts.of(&r.counts.lost) < 5 {
			t.Errorf("%d stubs were lost, want at least 5", r.counts.of(&r.counts.lost))
		}
	})
	t.Run("sleep", func(t *testing.T) {
		m := r.in(t).start("closes_descriptors", infer.Uint8)
		defer m.close()
		for range 2 {
			m.wantGood()
			m.wantError("sleep", "Stub process 'closes_descriptors_0_0' is not healthy.")
		}
		m.wantGood()
	})
}

// TestKeptInputsReturnWithTheStub checks that blocks that a model keeps are returned when its stub
// ends.
func TestKeptInputsReturnWithTheStub(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("keeps_inputs", infer.Uint8)
	for i := range 20 {
		request := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 200_000}, testkit.Pattern(200_000, i))}}
		m.mustInfer(request).Release()
		releaseInputs(request)
	}
	var n int
	if !testkit.Within(patience, func() bool {
		n = r.pool.Stats().Blocks
		return n == 20
	}) {
		t.Errorf("pool has %d blocks in use, want the 20 that the model keeps", n)
	}
	m.close() // the fixture checks that the pool is empty
}

// TestTamperedInputsHarmNoOther checks that only the model itself sees its writes to an input, and
// that reused blocks are clean.
func TestTamperedInputsHarmNoOther(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("tampers_with_inputs", infer.Uint8)
	for i := range 200 {
		data := testkit.Pattern(150_000, i)
		request := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 150_000}, data)}}
		response := m.mustInfer(request)
		for k, b := range response.Outputs[0].Data {
			if b != data[k]+1 {
				t.Fatalf("round %d: byte %d is %d, want %d", i, k, b, data[k]+1)
			}
		}
		if string(request.Inputs[0].Data) != string(data) {
			t.Fatalf("round %d: the request's own bytes have changed", i)
		}
		response.Release()
		releaseInputs(request)
	}
}

// TestKilledStubsAndTemplateReturn kills stubs and their template, and checks that they are
// replaced.
func TestKilledStubsAndTemplateReturn(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("dies_in_execute", infer.Uint8)
	for i := range 5 {
		m.wantGood()
		m.kill()
		if i == 2 {
			template := r.template() // soon replaced
			if err := unix.Kill(template, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, patience, func() bool { return r.template() != template })
		}
		r.lastCause(i + 1)
	}
	m.wantGood()
}

// TestStoppedStubServesOnceContinued checks that a briefly stopped stub is not replaced, and that
// Close ends a stub that stays stopped.
func TestStoppedStubServesOnceContinued(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.FinalizeTimeout = 300 * time.Millisecond })
	m := r.start("dies_in_execute", infer.Uint8)
	m.wantGood()
	pid := m.pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lies := handOver(m.instance(), r.small()) // the frame is in the ring, but the stub cannot take it
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if o := waitFor(t, lies); o.answer == nil || o.answer.Err != nil {
		t.Errorf("got %+v of a stub that was stopped for a moment, want an answer", o)
	} else {
		o.answer.Release()
	}
	m.wantGood()
	if now := m.pid(); now != pid {
		t.Errorf("stub is %d, want the first one, %d", now, pid)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m.close()
}

// TestNothingIsWritten checks that a model's directory stays unchanged.
func TestNothingIsWritten(t *testing.T) {
	t.Setenv("PYTHONDONTWRITEBYTECODE", "")
	for _, start := range []string{"template", "program"} {
		r := newFixture(t, func(c *python.Config) { c.NoTemplate = start == "program" })
		m := r.start("identity", infer.Uint8)
		m.close()
		entries, err := os.ReadDir(fmt.Sprintf("%s/1", m.dir))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 1 {
			t.Errorf("%s: directory of the version has %v, want model.py alone", start, entries)
		}
	}
}
