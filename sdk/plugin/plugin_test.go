package plugin_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

// TestIdentityOfAllSizes forwards and copies inputs of all sizes and responds after Execute has
// returned. A reused block never shows its earlier content.
func TestIdentityOfAllSizes(t *testing.T) {
	r := newFixture(t)
	for _, name := range []string{"identity", "copies", "later"} {
		m := r.start(name, nil)
		for _, n := range []int{0, 4, 4096, 4097, 70_000, 1 << 20, 16 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				for seed := range 3 {
					m.wantBytes(m.infer(r.request(testkit.Pattern(n, seed))), testkit.Pattern(n, seed))
				}
			})
		}
		m.close()
	}
}

// TestWritesIntoInputsStayPrivate checks that an author's writes into an input change neither the
// server's bytes nor the next request in the same block.
func TestWritesIntoInputsStayPrivate(t *testing.T) {
	r := newFixture(t)
	m := r.start("writes", nil)
	request := r.request(testkit.Pattern(100_000, 1))
	want := testkit.Pattern(100_000, 1)
	for i := range want {
		want[i]++
	}
	for range 5 {
		e := m.execute(t.Context(), request)
		m.wantBytes(e.next(0), want)
		e.done()
		if !bytes.Equal(request.Inputs[0].Data, testkit.Pattern(100_000, 1)) {
			t.Fatal("the server's bytes have changed")
		}
	}
	request.Inputs[0].Release()
}

// TestBatchIsAnsweredRequestByRequest executes batches of small inputs, of long inputs, and of more
// than a frame holds.
func TestBatchIsAnsweredRequestByRequest(t *testing.T) {
	r := newFixture(t)
	m := r.start("identity", nil)
	for _, sizes := range [][]int{{4, 5, 6}, {4, 5000, 100_000}, {4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000}} {
		var requests []*infer.Request
		for i, n := range sizes {
			requests = append(requests, r.request(testkit.Pattern(n, i)))
		}
		e := m.execute(t.Context(), requests...)
		for i, n := range sizes {
			m.wantBytes(e.next(i), testkit.Pattern(n, i))
			requests[i].Inputs[0].Release()
		}
		if report := e.done(); report.Err != nil || !report.Executed {
			t.Errorf("got report %+v", report)
		}
	}
}

// TestRequestArrivesWhole checks that all fields of a request reach the author.
func TestRequestArrivesWhole(t *testing.T) {
	r := newFixture(t)
	m := r.start("describes", nil)
	request := r.request([]byte{1})
	request.ID, request.Flags, request.TimeoutMicros, request.Priority, request.Outputs = "ürgent", 3, 77, 1<<63, []string{"OUT0"}
	request.Trace = trace.New(trace.Config{IDs: new(atomic.Uint64), TraceID: trace.TraceID{1}})
	request.Trace.Begin("describes", 1, "", 1)
	number, w3c, _ := strings.Cut(request.Trace.Text(), "{")
	request.Correlation.Text = "seq"
	request.Parameters = []infer.Parameter{
		{Name: "s", Kind: infer.StringParameter, String: "a\"b"}, {Name: "n", Kind: infer.IntParameter, Int: -1 << 63},
		{Name: "d", Kind: infer.DoubleParameter, Double: 2}, {Name: "y", Kind: infer.BoolParameter, Bool: true}, {Name: "s", Kind: infer.StringParameter},
	}
	answer := m.infer(request)
	said := fmt.Sprintf("%q %d %q %#x %d %d %v %v {%s {%s} true", "ürgent", 0, "seq", 3, 77, uint64(1)<<63, request.Parameters, []string{"OUT0"}, number, w3c)
	if got := answer.Parameters; len(got) != 3 || got[0].String != "ä\x01" || got[1].Int != 5 || !got[2].Bool {
		t.Errorf("got parameters %+v of the response", got)
	}
	m.wantBytes(answer, []byte(said))
}

// TestFailuresReachTheClients checks that errors and panics of the author reach the client. The
// process keeps running unless it exits.
func TestFailuresReachTheClients(t *testing.T) {
	r := newFixture(t)
	for _, test := range []struct {
		model string
		code  infer.Code
		text  string
	}{
		{"fails", infer.InvalidArg, "no 1 requests today"},
		{"panics", infer.Internal, "Execute panicked"},
	} {
		m := r.start(test.model, nil)
		for range 2 {
			request := r.request(testkit.Pattern(5000, 1))
			e := m.execute(t.Context(), request)
			response := e.next(0)
			report := e.done()
			request.Inputs[0].Release()
			if response.Err == nil || response.Err.Code != test.code || !strings.Contains(response.Err.Message, test.text) {
				t.Errorf("%s: got error %v, want %v with %q", test.model, response.Err, test.code, test.text)
			}
			if report.Err == nil {
				t.Errorf("%s: the batch counts as executed without a failure", test.model)
			}
		}
		m.close()
	}
	if !strings.Contains(r.log.String(), "stage fright") || !strings.Contains(r.log.String(), "actor_test.go") {
		t.Error("the log has no stack of the panic")
	}
	m := r.start("exits", nil)
	response := m.infer(r.request([]byte{1}))
	if response.Err == nil || !strings.Contains(response.Err.Message, "has ended unexpectedly") {
		t.Errorf("got %+v", response)
	}
}

// TestModelThatIsRefusedSaysWhy checks the errors of New and NewModel, with and without
// AUTO_COMPLETE.
func TestModelThatIsRefusedSaysWhy(t *testing.T) {
	for _, complete := range []bool{false, true} {
		r := newFixture(t)
		if _, err := r.open(configOf("refuses", nil), complete); err == nil || !strings.Contains(err.Error(), "the model is refused") {
			t.Errorf("complete %v: got error %v", complete, err)
		}
		wet := newFixture(t)
		wet.settings["refuse"] = "rain"
		if _, err := wet.open(configOf("identity", nil), complete); err == nil || !strings.Contains(err.Error(), "not today: rain") {
			t.Errorf("complete %v: got error %v", complete, err)
		}
	}
}

// TestConfigIsCompletedByTheProcessThatExecutes checks that the process that completes the config
// also executes.
func TestConfigIsCompletedByTheProcessThatExecutes(t *testing.T) {
	r := newFixture(t)
	m, err := r.open(configOf("completes", nil), true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.log.String(), "MORE") {
		t.Error("the config was not completed")
	}
	m.wantBytes(m.infer(r.request([]byte{5})), []byte{5})
	m.close()
	if got := r.printed.String(); strings.Count(got, "backend closed") != 1 || strings.Count(got, "model closed") != 1 || strings.Count(got, "instance closed") != 1 {
		t.Errorf("got printed %q, want each hook once", got)
	}
}

// TestDecoupledModelStreams sends more responses than a window holds. The server reads them one by
// one, so that credit is needed repeatedly.
func TestDecoupledModelStreams(t *testing.T) {
	r := newFixture(t)
	m := r.start("repeats", func(c *kserve.ModelConfig) {
		c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	})
	for _, n := range []uint32{0, 1, 1000} {
		request := r.request(binary.LittleEndian.AppendUint32(nil, n))
		e := m.execute(t.Context(), request)
		for i := range n {
			response := e.next(0)
			if response.Err != nil || response.Final || len(response.Outputs) != 1 || binary.LittleEndian.Uint32(response.Outputs[0].Data) != i {
				t.Fatalf("response %d: got %+v", i, response)
			}
			response.Release()
		}
		if last := e.next(0); !last.Final || !last.Empty || last.Err != nil {
			t.Errorf("got last %+v, want a flag", last)
		}
		e.done()
	}
}

// TestCancellationIsSeen cancels one request whose author waits for the cancellation, and one whose
// author polls while Execute holds the goroutine that reads.
func TestCancellationIsSeen(t *testing.T) {
	r := newFixture(t)
	for model, text := range map[string]string{"waits": "the client has gone: true", "polls": "seen at last"} {
		m := r.start(model, nil)
		ctx, cancel := context.WithCancel(t.Context())
		e := m.execute(ctx, r.request([]byte{1}))
		cancel()
		m.instance.Capabilities().Canceller.Cancel(e.tasks[0])
		if response := e.next(0); response.Err == nil || response.Err.Message != text {
			t.Errorf("%s: got %+v", model, response)
		}
		e.done()
		m.close()
	}
}

// TestContextsOfAnsweredRequests checks that contexts derived from answered requests end and do not
// crash the process, whether the request was cancelled and answered at once, answered, or had no
// context before.
func TestContextsOfAnsweredRequests(t *testing.T) {
	r := newFixture(t)
	m := r.start("derives", nil)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		e := m.execute(ctx, r.request([]byte{1}))
		cancel()
		m.instance.Capabilities().Canceller.Cancel(e.tasks[0])
		if response := e.next(0); response.Err == nil || response.Err.Message != "seen at last" {
			t.Fatalf("got %+v", response)
		}
		e.done()
	}
	m.close()
	m = r.start("after", nil)
	for i := range 50 {
		e := m.execute(t.Context(), r.request([]byte{1}))
		if response := e.next(0); response.Err == nil || response.Err.Message != fmt.Sprintf("%d ended", i) {
			t.Fatalf("got %+v", response)
		}
		e.done()
	}
	m.close()
}

// TestTimesAreTheAuthors checks that the author's reported times are used.
func TestTimesAreTheAuthors(t *testing.T) {
	r := newFixture(t)
	m := r.start("times", nil)
	e := m.execute(t.Context(), r.request([]byte{1}))
	e.next(0).Release()
	if report := e.done(); report.ComputeStart-report.Start != 1 || report.ComputeEnd-report.ComputeStart != 3 || report.End-report.ComputeEnd != 5 {
		t.Errorf("got %+v, want inputs in 1 ns, a computation of 3 ns and outputs in 5 ns", report)
	}
	m.close()
}

// TestReadinessIsTheAuthors checks a model that reports that it is not ready, and one without a
// readiness check.
func TestReadinessIsTheAuthors(t *testing.T) {
	r := newFixture(t)
	m := r.start("asks", nil)
	if err := m.instance.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "stage fright") {
		t.Errorf("got error %v, want the author's", err)
	}
	m.wantBytes(m.infer(r.request([]byte{5})), []byte{5})
	m.close()
	if err := r.start("identity", nil).instance.Ready(t.Context()); err != nil {
		t.Errorf("got error %v", err)
	}
}

// TestMetricsAreTheServers changes a server metric from a plugin and reads it back.
func TestMetricsAreTheServers(t *testing.T) {
	r := newFixture(t)
	m := r.start("measures", nil)
	// More than a process can use: the model's report is added.
	if bytes := m.model.Capabilities().ReportMemory(); bytes < 5<<40 {
		t.Errorf("got %d bytes of memory, want what the model has reported", bytes)
	}
	m.wantBytes(m.infer(r.request([]byte{5})), []byte{2})
	m.wantBytes(m.infer(r.request([]byte{5})), []byte{4})
}

// answering is a host whose model responds at once, in the calling goroutine or in another one.
type answering struct {
	backend.Host
	t         *testing.T
	decoupled bool
	apart     bool
	responses int
}

func (h *answering) Target(string, int64) (backend.Target, error) {
	return &backendtest.Target{IsDecoupled: h.decoupled, Run: h.submit}, nil
}

func (h *answering) ModelReady(_ context.Context, model string, version int64) (bool, error) {
	if model != "other" {
		return false, infer.Errorf(infer.NotFound, "no model '%s'", model)
	}
	return version == 3, nil
}

func (h *answering) Load(context.Context, string, string, map[string][]byte) error {
	return infer.Errorf(infer.Unavailable, "not now")
}

func (h *answering) Unload(context.Context, string, bool) error {
	return infer.Errorf(infer.Unsupported, "never")
}

func (h *answering) submit(_ context.Context, r *infer.Request, send infer.Sender) error {
	if len(r.Inputs) != 1 || r.Inputs[0].Name != "ELSE" || r.Caller == nil || len(r.Caller.Requests) != 1 || r.ID != "of x" || r.Priority != 2 {
		h.t.Errorf("got request %+v", r)
	}
	// The caller may free its memory before the responses are sent.
	data := bytes.Clone(r.Inputs[0].Data)
	for i := range data {
		data[i] ^= 0xff
	}
	answer := func() {
		for i := range h.responses {
			send(&infer.Response{
				Version: 7,
				Outputs: []infer.Tensor{{Name: "ANSWER", DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data}},
				Final:   !h.decoupled && i == h.responses-1,
			})
		}
		if h.decoupled {
			send(&infer.Response{Final: true, Empty: true})
		}
	}
	if h.apart {
		go answer()
	} else {
		answer()
	}
	return nil
}

// TestOtherModelsAreCalled calls another model from Execute: once, many times concurrently, and as
// a stream.
func TestOtherModelsAreCalled(t *testing.T) {
	for _, test := range []struct {
		model     string
		responses int
		stream    bool
	}{{"calls", 1, false}, {"gathers", 1, false}, {"streams", 100, true}} {
		for _, apart := range []bool{false, true} {
			for _, n := range []int{4, 100_000} {
				t.Run(fmt.Sprintf("%s/%v/%d", test.model, apart, n), func(t *testing.T) {
					r := newFixture(t)
					r.host = &answering{t: t, responses: test.responses, decoupled: test.stream, apart: apart}
					m := r.start(test.model, nil)
					for seed := range 3 {
						request := r.request(testkit.Pattern(n, seed))
						request.ID = "x"
						want := testkit.Pattern(n, seed)
						for i := range want {
							want[i] ^= 0xff
						}
						if test.stream {
							want = append([]byte{100}, want...)
						}
						m.wantBytes(m.infer(request), want)
					}
				})
			}
		}
	}
}

// TestServerIsAsked checks the replies to host calls, including their errors.
func TestServerIsAsked(t *testing.T) {
	r := newFixture(t)
	r.host = &answering{t: t, decoupled: true}
	m := r.start("asks-server", nil)
	const want = "decoupled true <nil>, ready true <nil>, unknown Not found no model 'nobody', load Unavailable not now, unload Unsupported never"
	response := m.infer(r.request([]byte{1}))
	if response.Err == nil || response.Err.Message != want || response.Err.Code != infer.Unsupported {
		t.Errorf("got %+v", response)
	}
}

// TestServerThatGoesTakesItsPluginsAlong closes a model whose Execute does not return. testkit.Main
// checks that no process is left.
func TestServerThatGoesTakesItsPluginsAlong(t *testing.T) {
	r := newFixture(t)
	m := r.start("waits", nil)
	e := m.execute(t.Context(), r.request([]byte{1}))
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.printed.String(), "waiting") })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.model.Close(ctx); err == nil {
		t.Error("a model whose Execute does not return was closed without force")
	}
	if response := e.next(0); response.Err == nil {
		t.Errorf("got %+v", response)
	}
}

// TestProgramStartedByHandPrintsHowToUseIt runs a plugin as a user would and expects a message.
func TestProgramStartedByHandPrintsHowToUseIt(t *testing.T) {
	if os.Getenv("NEREID_TEST_BY_HAND") != "" {
		plugin.Serve(newActor)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	byHand := exec.Command(self, "-test.run", t.Name())
	byHand.Env = append(os.Environ(), "NEREID_TEST_BY_HAND=1")
	said, err := byHand.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(said), "is a backend of Nereid") {
		t.Errorf("got error %v and %q", err, said)
	}
	// With the cookie but without files, the error names the variable.
	wrong := exec.Command(self)
	wrong.Env = append(os.Environ(), ipc.PluginCookieKey+"="+ipc.PluginCookieValue)
	said, err = wrong.CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != 70 || !strings.Contains(string(said), ipc.PluginFilesEnv) {
		t.Errorf("got error %v and %q", err, said)
	}
}

// TestRequestIsGivenBackToBeExecutedAgain reschedules a request and executes it again.
func TestRequestIsGivenBackToBeExecutedAgain(t *testing.T) {
	r := newFixture(t)
	m := r.start("again", func(c *kserve.ModelConfig) {
		c.SchedulingChoice = &kserve.ModelConfig_SequenceBatching{SequenceBatching: &kserve.ModelSequenceBatching{IterativeSequence: true}}
	})
	request := r.request(testkit.Pattern(100_000, 1))
	e := m.execute(t.Context(), request)
	if report := e.done(); len(report.Rescheduled) != 1 || report.Rescheduled[0] != e.tasks[0] {
		t.Fatalf("got report %+v, want the request back", report)
	}
	e = m.execute(t.Context(), request)
	m.wantBytes(e.next(0), testkit.Pattern(100_000, 1))
	e.done()
	request.Inputs[0].Release()
}

// TestRequestThatIsDroppedIsAnswered checks that a request dropped by the author gets an error and
// is logged, although the process is idle.
func TestRequestThatIsDroppedIsAnswered(t *testing.T) {
	r := newFixture(t)
	m := r.start("drops", nil)
	if response := m.infer(r.request(testkit.Pattern(100_000, 1))); response.Err == nil || !response.Final {
		t.Errorf("got %+v, want an error", response)
	}
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.log.String(), "no final response") })
}

// TestIdlePluginSleeps checks that an idle plugin's threads are never scheduled.
func TestIdlePluginSleeps(t *testing.T) {
	r := newFixture(t)
	m := r.start("identity", nil)
	m.wantBytes(m.infer(r.request(testkit.Pattern(100_000, 1))), testkit.Pattern(100_000, 1))
	pid := pluginOf(t)
	if pid == 0 {
		t.Fatal("the plugin is not found")
	}
	last := ""
	testkit.Eventually(t, patience, func() bool {
		now := switches(t, pid)
		same := now == last
		last = now
		if !same {
			time.Sleep(time.Second) // the observed interval
		}
		return same
	})
}

// pluginOf returns the PID of this test binary's only plugin.
func pluginOf(t *testing.T) (pid int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range all {
		folder := filepath.Dir(stat)
		if program, err := os.Readlink(folder + "/exe"); err != nil || program != self {
			continue
		}
		text, err := os.ReadFile(stat)
		fields := strings.Fields(string(text))
		if err == nil && len(fields) > 4 && fields[3] == strconv.Itoa(os.Getpid()) {
			pid, _ = strconv.Atoi(filepath.Base(folder))
		}
	}
	return pid
}

// switches returns the context switch counts of each thread of a process.
func switches(t *testing.T, pid int) (text string) {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(all) == 0 {
		t.Fatalf("process %d: %d threads, error %v", pid, len(all), err)
	}
	for _, status := range all {
		content, err := os.ReadFile(status)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, "ctxt_switches") {
				text += line
			}
		}
	}
	return text
}

// TestActivitiesAreTracedByTheServer reports activities for a traced and an untraced request, and
// expects them in the trace.
func TestActivitiesAreTracedByTheServer(t *testing.T) {
	r := newFixture(t)
	m := r.start("acts", nil)
	m.infer(r.request([]byte{1})).Release()
	request := r.request([]byte{1})
	done := make(chan *trace.Tree, 1)
	request.Trace = trace.New(trace.Config{Timestamps: true, IDs: new(atomic.Uint64), TraceID: trace.TraceID{1}, Now: backend.Now, Done: func(tree *trace.Tree) { done <- tree }})
	begun := backend.Now()
	request.Trace.Begin("acts", 1, "", begun)
	m.infer(request).Release()
	request.Trace.Responded(true)
	request.Trace.Finish()
	entries := (<-done).Records()[0].Entries
	if len(entries) != 6 || entries[2].Name != "äct_START" || entries[2].At != begun || entries[3].Name != "äct_END" || entries[3].At <= begun || !entries[3].Own {
		t.Errorf("got %+v, want activities at %d and later", entries, begun)
	}
	m.close()
}
