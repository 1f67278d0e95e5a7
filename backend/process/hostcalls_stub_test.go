package process_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// ask makes the model asks run Python text and returns the result.
func (m *running) ask(text string) string {
	m.fixture.t.Helper()
	request := &infer.Request{Inputs: []infer.Tensor{m.fixture.tensor("IN0", infer.Uint8, []int64{1, int64(len(text))}, []byte(text))}}
	defer releaseInputs(request)
	response := m.mustInfer(request)
	defer response.Release()
	return string(response.Outputs[0].Data)
}

// exposition returns the metrics endpoint's output.
func (r *fixture) exposition() string {
	w := httptest.NewRecorder()
	r.counts.custom.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func (r *fixture) wantLines(lines ...string) {
	r.t.Helper()
	text := r.exposition()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			r.t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// callHost records models' host calls and replies as configured.
type callHost struct {
	backend.Host
	mu    sync.Mutex
	calls []string
	err   error
	held  chan struct{} // if set, Load waits for it or for its context
}

func (h *callHost) note(format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
	return h.err
}

func (h *callHost) Load(ctx context.Context, model, config string, files map[string][]byte) error {
	err := h.note("load %q %q %q", model, config, files)
	if h.held != nil {
		select {
		case <-h.held:
		case <-ctx.Done():
			_ = h.note("given up %s", model)
			return context.Cause(ctx)
		}
	}
	return err
}

func (h *callHost) Unload(_ context.Context, model string, dependents bool) error {
	return h.note("unload %q %v", model, dependents)
}

func (h *callHost) ModelReady(_ context.Context, model string, version int64) (bool, error) {
	return model == "there", h.note("ready %q %d", model, version)
}

func (h *callHost) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *callHost) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.calls, "; ")
	h.calls = nil
	return text
}

// eachPython runs a test with the oldest and the newest Python.
func eachPython(t *testing.T, test func(t *testing.T, r *fixture)) {
	pythons := testkit.Pythons(t)
	for i, python := range pythons {
		if i == 0 || i == len(pythons)-1 {
			t.Run(python.String(), func(t *testing.T) { test(t, newFixtureWith(t, python.Path, nil)) })
		}
	}
}

// callCase is an expression for a model and its result. The result is a prefix if it ends with "…".
type callCase struct{ says, want string }

func (m *running) rows(rows []callCase) {
	m.fixture.t.Helper()
	for _, row := range rows {
		got := m.ask(row.says)
		if begin, ok := strings.CutSuffix(row.want, "…"); got != row.want && !(ok && strings.HasPrefix(got, begin)) {
			m.fixture.t.Errorf("%s\n got %s\nwant %s", row.says, got, row.want)
		}
	}
}

// TestMetricsAnswerModelsByTheTable checks the rules and error texts of custom metrics.
func TestMetricsAnswerModelsByTheTable(t *testing.T) {
	const (
		failed   = "Failed to process the request for model 'asks_0_0', message: "
		family   = "TritonModelException: Error when creating MetricFamily: " + failed
		metric   = "TritonModelException: Error when creating Metric: " + failed
		gone     = "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
		change   = "(): incompatible function arguments. The following argument types are supported:\n    1. (self: c_python_backend_utils.Metric, arg0: float) -> None\n\nInvoked with: <c_python_backend_utils.Metric object at …"
		made     = "<c_python_backend_utils.Metric object at …"
		madeOne  = "<c_python_backend_utils.MetricFamily object at …"
		strictly = metric + "Bucket Boundaries must be strictly sorted"
	)
	eachPython(t, func(t *testing.T, r *fixture) {
		m := r.start("asks", infer.Uint8)
		m.rows([]callCase{
			{"F = pb.MetricFamily", "done"},
			{"[int(k) for k in (F.COUNTER, F.GAUGE, F.HISTOGRAM)], F.GAUGE == c.GAUGE == c.MetricKind.GAUGE, str(c.COUNTER), repr(c.HISTOGRAM)",
				"([0, 1, 2], True, 'MetricKind.COUNTER', '<MetricKind.HISTOGRAM: 2>')"},
			{"[name for name in dir(F) if name[0] != '_'], [name for name in dir(c.Metric) if name[0] != '_']",
				"(['COUNTER', 'GAUGE', 'HISTOGRAM', 'Metric'], ['increment', 'observe', 'set', 'value'])"},
			{"cf, gf, hf = F('cf', 'counts', F.COUNTER), F(name='gf', description='gauges', kind=F.GAUGE), F(b'hf', b'sizes', F.HISTOGRAM)", "done"},
			{"cm, gm, hm = cf.Metric(), gf.Metric(labels={'a': 'b'}), hf.Metric(labels={'a': 'b'}, buckets=[0.1, 1, np.float32(10)])", "done"},
			// Arguments.
			{"F('x', 'd')", "TypeError: __init__(): incompatible constructor arguments. The following argument types are supported:\n    1. c_python_backend_utils.MetricFamily(name: str, description: str, kind: c_python_backend_utils.MetricKind)\n\nInvoked with: 'x', 'd'"},
			{"F('x', 'd', 1)", "TypeError: __init__(): incompatible constructor arguments.…"},
			{"F(None, 'd', F.GAUGE)", "TypeError: __init__(): incompatible constructor arguments.…"},
			{"F('x', None, F.GAUGE)", "TypeError: __init__(): incompatible constructor arguments.…"},
			{"F('x', 'd', F.GAUGE, 1)", "TypeError: __init__(): incompatible constructor arguments.…"},
			{"c.Metric()", "TypeError: c_python_backend_utils.Metric: No constructor defined!"},
			{"gf.name", "AttributeError: 'c_python_backend_utils.MetricFamily' object has no attribute 'name'"},
			{"gf.Metric(foo=1)", "TypeError: Metric(): incompatible function arguments. The following argument types are supported:\n    1. (self: c_python_backend_utils.MetricFamily, labels: object = None, buckets: object = None) -> c_python_backend_utils.Metric\n\nInvoked with: <c_python_backend_utils.MetricFamily object at …"},
			{"gf.Metric(labels=[1])", "TritonModelException: Failed to create metric. Labels must be a dictionary."},
			{"hf.Metric(buckets=(1, 2))", "TritonModelException: Failed to create metric. Buckets must be a list."},
			{"gf.Metric(buckets=(1, 2))", "TritonModelException: Failed to create metric. Buckets must be a list."},
			{"gf.Metric(buckets=[1])", "TritonModelException: Failed to create metric. Unexpected buckets found."},
			{"cf.Metric(buckets=[])", "TritonModelException: Failed to create metric. Unexpected buckets found."},
			{"hf.Metric()", "TritonModelException: Failed to create metric. Missing required buckets."},
			{"hf.Metric({'a': 'x'}, ['a'])", "RuntimeError: Unable to cast Python instance of type <class 'str'> to C++ type…"},
			{"hf.Metric({'a': 'empty'}, [])", made},
			{"hf.Metric({'a': 'inf'}, [1, float('inf')])", made},
			{"hf.Metric({'a': 'x'}, [1, 1])", strictly},
			{"hf.Metric({'a': 'b'}, [2, 1])", strictly},
			{"hf.Metric({'a': 'b'}, [2, 3])", made}, // the first buckets stay
			// Labels.
			{"gf.Metric({'a': 1})", metric + "attempt to access JSON non-string as string"},
			{"gf.Metric({'a': None})", metric + "attempt to access JSON non-string as string"},
			{"gf.Metric({'a': b'x'})", "TypeError: Object of type bytes is not JSON serializable"},
			{"gf.Metric({(1,): 'x'})", "TypeError: keys must be str, int, float, bool or None, not tuple"},
			{"gf.Metric({1: 'x'})", metric + "Invalid label name"},
			{"gf.Metric({None: 'x'})", made},
			{"gf.Metric({'': 'x'})", metric + "Invalid label name"},
			{"gf.Metric({'__a': 'x'})", metric + "Invalid label name"},
			{"gf.Metric({'a:b': 'x'})", metric + "Invalid label name"},
			{"gf.Metric({'quantile': 'x', 'z': '', 'a': 'ü\\n\"\\\\'})", made},
			{"gf.Metric({'a': '\\ud800'})", metric + "failed to parse the request JSON buffer: The surrogate pair in string is invalid…"},
			// Names.
			{"F('', 'd', F.GAUGE)", family + "Invalid metric name"},
			{"F('1a', 'd', F.GAUGE)", family + "Invalid metric name"},
			{"F('a.b', 'd', F.GAUGE)", family + "Invalid metric name"},
			{"F('é', 'd', F.GAUGE)", family + "Invalid metric name"},
			{"F(b'\\xff', 'd', F.GAUGE)", family + "Invalid metric name"},
			{"F('a:b', 'd', F.GAUGE)", madeOne},
			{"F('gf', 'other', F.GAUGE)", madeOne},
			{"F('gf', 'gauges', F.COUNTER)", family + "Family name already exists with different type"},
			{"F('nv_inference_count', 'd', F.COUNTER)", family + "Family name already exists: 'nv_inference_count' is a metric of the server itself"},
			// Operations by kind.
			{"cm.increment(2), cm.increment(True), cm.increment(np.float32(0.5)), cm.increment(np.array(0.5)), cm.value()", "(None, None, None, None, 4.0)"},
			{"cm.increment(0), cm.increment(-0.0), cm.value()", "(None, None, 4.0)"},
			{"cm.increment(-1)", "TritonModelException: Failed to increment metric value: " + failed + "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."},
			{"cm.set(1)", "TritonModelException: Failed to set metric value: " + failed + "TRITONSERVER_METRIC_KIND_COUNTER does not support Set"},
			{"cm.observe(1)", "TritonModelException: Failed to observe metric value: " + failed + "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"},
			{"gm.set(5), gm.increment(-7.5), gm.value()", "(None, None, -2.5)"},
			{"gm.observe(1)", "TritonModelException: Failed to observe metric value: " + failed + "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"},
			{"[hm.observe(v) for v in (0.1, 0.5, 5, 100)]", "[None, None, None, None]"},
			{"hm.increment(1)", "TritonModelException: Failed to increment metric value: " + failed + "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"},
			{"hm.set(1)", "TritonModelException: Failed to set metric value: " + failed + "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"},
			{"hm.value()", "TritonModelException: Failed to get metric value: " + failed + "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"},
			// Values.
			{"import decimal, fractions", "done"},
			{"gm.set(decimal.Decimal('0.5')), gm.increment(fractions.Fraction(1, 4)), gm.value()", "(None, None, 0.75)"},
			{"gm.set(float('-inf')), gm.value()", "(None, -inf)"},
			{"gm.set(float('nan')), gm.value()", "(None, nan)"},
			{"gm.set(1e300), gm.value()", "(None, 1e+300)"},
			{"gm.set(-0.0), gm.value()", "(None, -0.0)"},
			{"gm.set('1')", "TypeError: set" + change},
			{"cm.increment(None)", "TypeError: increment" + change},
			{"cm.increment(10 ** 400)", "TypeError: increment" + change},
			{"cm.increment(1j)", "TypeError: increment" + change},
			{"cm.increment(np.array([1.0, 2.0]))", "TypeError: increment" + change},
			{"cm.increment(b'1')", "TypeError: increment" + change},
			{"cm.increment(value=1)", "TypeError: increment" + change},
			{"cm.increment()", "TypeError: increment" + change},
			{"cm.value(1)", "TypeError: value(): incompatible function arguments.…"},
			// Lifetimes: two objects of one series, and a family dropped before its metric.
			{"cf2 = F('cf', 'again', F.COUNTER); cm2 = cf2.Metric({}); cm2.increment(6)", "done"},
			{"cm.value(), cm2.value(), cf.Metric().value()", "(10.0, 10.0, 10.0)"},
			{"del cf2", "done"},
			{"cm2.increment(1)", "TritonModelException: Failed to increment metric value: " + gone},
			{"cm.value()", "10.0"},
			{"F('once', 'd', F.GAUGE).Metric().value()", "TritonModelException: Failed to get metric value: " + gone},
			{"kept = F('once', 'd', F.GAUGE); k = kept.Metric(); k.set(3); del k; kept.Metric().value()", "done"},
			{"kept.Metric().value()", "3.0"},
			{"s = F('once', 'd', F.GAUGE).Metric()", "done"},
			{"s.set(1)", "TritonModelException: Failed to set metric value: " + gone},
			{"kept = None", "done"},
			{"kept = F('once', 'd', F.GAUGE)", "done"},
			{"kept.Metric().value()", "0.0"},
			// Unsupported operations on bound objects.
			{"setattr(cm, 'x', 1)", "AttributeError: 'c_python_backend_utils.Metric' object has no attribute 'x'…"},
			{"__import__('copy').copy(cf)", "TypeError: cannot pickle 'c_python_backend_utils.MetricFamily' object"},
		})
		r.wantLines("# HELP cf counts", "# TYPE cf counter", "cf 10", "# TYPE gf gauge", `gf{a="b"} -0`, `gf{a="ü\n\"\\",quantile="x",z=""} 0`,
			`gf{null="x"} 0`, "# TYPE hf histogram", `hf_count{a="b"} 4`, `hf_sum{a="b"} 105.6`, `hf_bucket{a="b",le="0.1"} 1`,
			`hf_bucket{a="b",le="1"} 2`, `hf_bucket{a="b",le="10"} 3`, `hf_bucket{a="b",le="+Inf"} 4`, `hf_bucket{a="empty",le="+Inf"} 0`)
		m.close()
		// Metrics that the model has not dropped stay, including those that only this life used.
		r.wantLines("cf 10", "once 0")
	})
}

// TestLoadAndUnloadAnswerModelsByTheTable checks the rules and error texts of loading and
// unloading.
func TestLoadAndUnloadAnswerModelsByTheTable(t *testing.T) {
	const failed = "Failed to process the request for model 'asks_0_0', message: "
	eachPython(t, func(t *testing.T, r *fixture) {
		host := &callHost{}
		r.host = host
		m := r.start("asks", infer.Uint8)
		for _, tt := range []struct{ says, want, calls string }{
			{"pb.load_model('m')", "None", `load "m" "" map[]`},
			{"pb.load_model(model_name=b'm', config='{}', files=None)", "None", `load "m" "{}" map[]`},
			{"pb.load_model('m', '{}', {'file:1/model.py': b'x\\x00'})", "None", `load "m" "{}" map["1/model.py":"x\x00"]`},
			{"pb.load_model('m', files={})", "None", `load "m" "" map[]`},
			{"pb.load_model('m', files={'file:1/x': b'y' * 40_000})", "None", `load "m" "" map["1/x":"` + strings.Repeat("y", 40_000) + `"]`},
			{"pb.load_model('m', '', [1])", "TritonModelException: failed to load model 'm', files should be a dictionary of file paths and file contents", ""},
			{"pb.load_model('m', files={'file:x': 1})", "TypeError: Object of type 'int' is not an instance of 'bytes'", ""},
			{"pb.load_model('m', files={1: b'x'})", "RuntimeError: Unable to cast Python instance of type <class 'int'> to C++ type…", ""},
			{"pb.load_model('m', files={'x': b'x'})", "TritonModelException: Failed to load model: " + failed + "failed to load 'm', failed to poll from model repository", ""},
			{"pb.load_model('m', files={'file:%d' % i: b'' for i in range(5000)})", "TritonModelException: Failed to load model: " + failed + "failed to load 'm', it has more than 4096 files", ""},
			{"pb.load_model('m', files={'file:x': b'x' * (64 << 20)})", "TritonModelException: Failed to load model: " + failed + "the call has 67…", ""},
			{"pb.load_model(None)", "TypeError: load_model(): incompatible function arguments. The following argument types are supported:\n    1. (model_name: str, config: str = '', files: object = None) -> None\n\nInvoked with: None", ""},
			{"pb.load_model('m', None)", "TypeError: load_model(): incompatible function arguments.…", ""},
			{"pb.load_model()", "TypeError: load_model(): incompatible function arguments.…", ""},
			{"pb.unload_model('m')", "None", `unload "m" false`},
			{"pb.unload_model(model_name='m', unload_dependents=True)", "None", `unload "m" true`},
			{"pb.unload_model('m', 1), pb.unload_model('m', np.bool_(False))", "(None, None)", `unload "m" true; unload "m" false`},
			{"pb.unload_model('m', 'x')", "TypeError: unload_model(): incompatible function arguments.…", ""},
			{"pb.is_model_ready('there')", "True", `ready "there" -1`},
			{"pb.is_model_ready(model_name='m', model_version='3')", "False", `ready "m" 3`},
			{"[pb.is_model_ready(b'm', v) for v in ('', '1abc', ' 1', '+1', '0')]", "[False, False, False, False, False]", `ready "m" -1; ready "m" 1; ready "m" 1; ready "m" 1; ready "m" 0`},
			{"pb.is_model_ready('m', 1)", "TypeError: is_model_ready(): incompatible function arguments. The following argument types are supported:\n    1. (model_name: str, model_version: str = '') -> bool\n\nInvoked with: 'm', 1", ""},
			{"pb.is_model_ready('m', 'x')", "TritonModelException: Failed to check model readiness: " + failed + "failed to get model version from specified version string 'x' (details: stol), version should be an integral value > 0", ""},
			{"pb.is_model_ready('m', '99999999999999999999')", "TritonModelException: Failed to check model readiness: " + failed + "failed to get model version from specified version string '99999999999999999999' (details: stol), version should be an integral value > 0", ""},
			{"pb.is_model_ready('m', '-1')", "TritonModelException: Failed to check model readiness: " + failed + "failed to get model version from specified version string '-1', version should be an integral value > 0", ""},
		} {
			m.rows([]callCase{{tt.says, tt.want}})
			if got := host.take(); got != tt.calls {
				t.Errorf("%s: the server was asked for %.200s, want %.200s", tt.says, got, tt.calls)
			}
		}
		text := "wörld\nat end" + strings.Repeat(".", 50_000)
		host.fail(&infer.Error{Code: infer.Unavailable, Message: text})
		m.rows([]callCase{
			{"pb.load_model('m')", "TritonModelException: Failed to load model: " + failed + text},
			{"pb.unload_model('m')", "TritonModelException: Failed to unload model: " + failed + text},
			{"pb.is_model_ready('m')", "TritonModelException: Failed to check model readiness: " + failed + text},
		})
	})
}

// TestHostCallsWorkInEveryPartOfALife makes calls from each part of a model's life, and from other
// threads.
func TestHostCallsWorkInEveryPartOfALife(t *testing.T) {
	eachPython(t, func(t *testing.T, r *fixture) {
		host := &callHost{}
		r.host = host
		m, err := r.open(r.writeModel("everywhere", `
import threading
import triton_python_backend_utils as pb_utils

FAMILY = pb_utils.MetricFamily("at_import", "d", pb_utils.MetricFamily.COUNTER)

class TritonPythonModel:
    def __init__(self):
        pb_utils.load_model("from __init__")
        self.family = pb_utils.MetricFamily("everywhere", "d", pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric(labels={"where": "x"})
        self.metric.increment(1)

    def initialize(self, args):
        def work():
            pb_utils.unload_model("from a thread of initialize")
            self.metric.increment(10)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert pb_utils.is_model_ready("there")

    async def execute(self, requests):
        self.metric.increment(100)
        assert self.metric.value() == 111
        pb_utils.load_model("from execute")
        return [pb_utils.InferenceResponse([]) for _ in requests]

    def is_ready(self):
        self.metric.increment(0.5)
        pb_utils.unload_model("from is_ready")
        return self.metric.value() == 111.5

    def finalize(self):
        self.metric.increment(999.5)
        assert self.metric.value() == 1111
        pb_utils.load_model("from finalize")
`), modelConfig("everywhere", 1, infer.Uint8))
		if err != nil {
			t.Fatal(err)
		}
		request := r.small()
		m.mustInfer(request).Release()
		releaseInputs(request)
		if err := m.instance().Ready(t.Context()); err != nil {
			t.Errorf("Ready: got error %v", err)
		}
		m.close()
		r.wantLines(`everywhere{where="x"} 1111`)
		want := `load "from __init__" "" map[]; unload "from a thread of initialize" false; ready "there" -1; load "from execute" "" map[]; unload "from is_ready" false; load "from finalize" "" map[]`
		if got := host.take(); got != want {
			t.Errorf("got calls %s, want %s", got, want)
		}
	})
}
