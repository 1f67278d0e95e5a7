package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// tracedModels creates a model, a model that calls it twice, once with its trace, an ensemble of
// both, a failing model, and a model that responds twice.
func tracedModels(t *testing.T) string {
	const config = `backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 3 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 3 ] } ]
`
	model := func(body string) string {
		return "import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n" + body
	}
	const same = `pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())`
	return writeFiles(t, map[string]string{
		"ident/config.pbtxt": config,
		"ident/1/model.py":   model("        return [pb_utils.InferenceResponse([" + same + "]) for r in requests]\n"),
		"bad/config.pbtxt":   config,
		"bad/1/model.py":     model("        raise pb_utils.TritonModelException(\"no\")\n"),
		"bls/config.pbtxt":   config,
		"bls/1/model.py": model(`        responses = []
        for r in requests:
            print("context is", r.trace().get_context(), flush=True)
            inputs = [pb_utils.get_input_tensor_by_name(r, "IN")]
            for extra in ({"trace": r.trace(), "request_id": "inner"}, {"request_id": "not traced"}):
                inner = pb_utils.InferenceRequest(model_name="ident", requested_output_names=["OUT"], inputs=inputs, **extra)
                answer = inner.exec()
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
`),
		"rep/config.pbtxt": config + "model_transaction_policy { decoupled: true }\n",
		"rep/1/model.py": model(`        for r in requests:
            sender = r.get_response_sender()
            for _ in range(2):
                sender.send(pb_utils.InferenceResponse([` + same + `]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`),
		"ens/config.pbtxt": `platform: "ensemble"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 3 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 3 ] } ]
ensemble_scheduling { step [
  { model_name: "ident" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "MID" } },
  { model_name: "bls" model_version: -1 input_map { key: "IN" value: "MID" } output_map { key: "OUT" value: "OUT" } }
] }
`,
		"ens/1/.keep": "",
	})
}

// traceEntry is one entry of a trace file.
type traceEntry struct {
	ID         int
	Model      string `json:"model_name"`
	Version    int    `json:"model_version"`
	Request    string `json:"request_id"`
	Parent     int    `json:"parent_id"`
	Activity   string
	Tensor     *struct{ Name, Data, Shape, DType string }
	Timestamps []struct {
		Name string
		NS   int64
	}
}

// readTraces returns the contents of a trace file for each request, keyed by its model and id: the
// names of its entries in order, and the model and id of its parent.
func readTraces(t *testing.T, path string) (entries, parents map[string]string) {
	t.Helper()
	content, err := os.ReadFile(path)
	var list []traceEntry
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	names, of, above := map[int]string{}, map[int]string{}, map[int]int{}
	for _, e := range list {
		switch {
		case e.Model != "":
			names[e.ID] = fmt.Sprintf("%s/%d %s", e.Model, e.Version, e.Request)
			above[e.ID] = e.Parent
			of[e.ID] += "model "
		case e.Tensor != nil:
			of[e.ID] += e.Activity + " "
			if want := "1,2,3 1,3 INT32"; e.Tensor.Data+" "+e.Tensor.Shape+" "+e.Tensor.DType != want {
				t.Errorf("%s is %+v, want %s", e.Activity, *e.Tensor, want)
			}
		default:
			of[e.ID] += e.Timestamps[0].Name + " "
		}
	}
	entries, parents = map[string]string{}, map[string]string{}
	for id, text := range of {
		entries[names[id]], parents[names[id]] = strings.TrimSpace(text), names[above[id]]
	}
	return entries, parents
}

// These are the entries of Triton 2.51.0 for the same requests. It writes COMPUTE_ entries in a
// separate thread, so they may come after the response.
const (
	tracedBegin = "model REQUEST_START QUEUE_START TENSOR_QUEUE_INPUT "
	tracedRun   = "COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END "
	tracedOut   = "TENSOR_BACKEND_OUTPUT "
	tracedInner = tracedBegin + tracedRun + tracedOut + "REQUEST_END"
	tracedHTTP  = "HTTP_RECV_START HTTP_RECV_END " + tracedBegin
	tracedSent  = "INFER_RESPONSE_COMPLETE REQUEST_END HTTP_SEND_START HTTP_SEND_END"
	tracedGRPC  = "REQUEST_END GRPC_WAITREAD_START GRPC_WAITREAD_END INFER_RESPONSE_COMPLETE"
	tracedReply = " GRPC_SEND_START GRPC_SEND_END"
)

var tracedEntries = map[string]string{
	"ident/1 http":   tracedHTTP + tracedRun + tracedOut + tracedSent,
	"ens/1 ensemble": tracedHTTP + tracedOut + tracedSent,
	"bad/1 bad":      tracedHTTP + tracedRun + tracedSent,
	"ident/1 grpc":   tracedBegin + tracedRun + tracedOut + tracedGRPC + tracedReply,
	"bad/1 refused":  tracedBegin + tracedRun + tracedGRPC + tracedReply,
	"rep/1 stream":   tracedBegin + tracedOut + tracedOut + tracedRun + tracedGRPC + tracedReply + tracedReply + tracedReply,

	"ident/1 ensemble": tracedInner, "bls/1 ensemble": tracedInner, "ident/1 inner": tracedInner,
}

var tracedParents = map[string]string{
	"ident/1 http": "", "ens/1 ensemble": "", "bad/1 bad": "", "ident/1 grpc": "", "bad/1 refused": "", "rep/1 stream": "",
	"ident/1 ensemble": "ens/1 ensemble", "bls/1 ensemble": "ens/1 ensemble", "ident/1 inner": "bls/1 ensemble",
}

func TestTraceFilesHaveTritonsEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	s := start(t, testkit.Python(t).Path, tracedModels(t), "--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS",
		"--trace-config=rate=1", "--trace-config=triton,file="+path)
	s.runClient("traces.py", "infer")
	s.stop()
	entries, parents := readTraces(t, path)
	if !maps.Equal(entries, tracedEntries) {
		for name := range entries {
			if entries[name] != tracedEntries[name] {
				t.Errorf("%s: got  %s\nwant %s", name, entries[name], tracedEntries[name])
			}
		}
		t.Errorf("got requests %q, want %q", slices.Sorted(maps.Keys(entries)), slices.Sorted(maps.Keys(tracedEntries)))
	}
	if !maps.Equal(parents, tracedParents) {
		t.Errorf("got parents %q, want %q", parents, tracedParents)
	}
}

// TestTraceFilesSameAsTriton checks that Triton's traces of the same six requests have the same
// entries. The order of compute and response varies from run to run, so it is ignored.
func TestTraceFilesSameAsTriton(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	s := startTriton(t, yardstick(t), tracedModels(t), "--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS",
		"--trace-config=rate=1", "--trace-config=triton,file="+path, "--trace-config=triton,log-frequency=6")
	s.runClient("traces.py", "infer")
	path += ".0"
	s.until("the trace file", func() bool {
		content, err := os.ReadFile(path)
		return err == nil && json.Valid(content)
	})
	entries, parents := readTraces(t, path)
	for name, want := range tracedEntries {
		got, wanted := strings.Fields(entries[name]), strings.Fields(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: Triton has %v, want %v", name, got, wanted)
		}
	}
	if !maps.Equal(parents, tracedParents) {
		t.Errorf("Triton has parents %q, want %q", parents, tracedParents)
	}
}

// spanReceiver is an OpenTelemetry collector.
type spanReceiver struct {
	mu    sync.Mutex
	spans []*tracepb.Span
}

// ServeHTTP implements http.Handler.
func (r *spanReceiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var export collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range export.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
}

// below returns the spans below a parent in the order of their start times, each with its request
// id and the spans below it.
func (r *spanReceiver) below(parent, indent string) (lines []string) {
	var list []*tracepb.Span
	for _, s := range r.spans {
		if string(s.GetParentSpanId()) == parent {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *tracepb.Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	for _, s := range list {
		line := indent + s.GetName()
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "triton.request_id" {
				line += " " + a.GetValue().GetStringValue()
			}
		}
		lines = append(append(lines, line), r.below(string(s.GetSpanId()), indent+"  ")...)
	}
	return lines
}

// TestSpansOfABLSRequestInAnEnsemble checks the tree of spans of an ensemble with a BLS request,
// and that the model's trace context names the model's own span.
func TestSpansOfABLSRequestInAnEnsemble(t *testing.T) {
	var r spanReceiver
	collector := httptest.NewServer(&r)
	defer collector.Close()
	s := start(t, testkit.Python(t).Path, tracedModels(t), "--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS",
		"--trace-config=rate=0", "--trace-config=opentelemetry,url="+collector.URL+"/v1/traces")
	s.runClient("traces.py", "infer")
	s.stop()
	want := []string{
		"InferRequest", "  ens ensemble", "    ident ensemble", "      compute",
		"    bls ensemble", "      compute", "      ident inner", "        compute",
		"InferRequest", "  ident grpc", "    compute",
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	client := "\xb7\xad\x6b\x71\x69\x20\x33\x31" // the span id of CONTEXT in traces.py
	if got := r.below(client, ""); !slices.Equal(got, want) || len(r.spans) != len(want) {
		t.Errorf("got %d spans\n%s\nwant %d\n%s", len(r.spans), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
	}
	for _, span := range r.spans {
		if got := fmt.Sprintf("%x", span.GetTraceId()); got != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is of trace %s", span.GetName(), got)
		}
		if span.GetName() == "bls" && !s.prints(fmt.Sprintf(`context is {"traceparent":"00-%x-%x-01","tracestate":"a=b"}`, span.GetTraceId(), span.GetSpanId())) {
			t.Errorf("the model was not told of its span %x", span.GetSpanId())
		}
	}
}

func TestTraceSettingsByRealClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	start(t, testkit.Python(t).Path, tracedModels(t), "--trace-config=triton,file="+path).runClient("traces.py", "settings")
}

// TestEverySchedulerEndsItsTraces sends requests through every kind of scheduler and checks the
// entries of their traces. Each request executes once, except if the cache responds.
func TestEverySchedulerEndsItsTraces(t *testing.T) {
	const config = `backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 3 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 3 ] } ]
`
	files := map[string]string{}
	for name, more := range map[string]string{
		"plain": "", "dynamic": "dynamic_batching { }\n", "cached": "response_cache { enable: true }\n",
		"direct": "sequence_batching { direct { } }\n", "oldest": "sequence_batching { oldest { max_candidate_sequences: 4 } }\n",
		"stacked": "dynamic_batching { }\nparameters { key: \"BATCH_MODE\" value { string_value: \"stacked\" } }\n",
	} {
		files[name+"/config.pbtxt"] = config + more
		files[name+"/1/model.py"] = `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())])
            for r in requests
        ]
`
	}
	path := filepath.Join(t.TempDir(), "trace.json")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--rate-limit=execution_count", "--cache-config=local,size=4000000",
		"--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=triton,file="+path)
	want := map[string]string{}
	for name := range files {
		model, isConfig := strings.CutSuffix(name, "/config.pbtxt")
		for i := range 3 {
			if !isConfig {
				continue
			}
			id := fmt.Sprint(i)
			parameters := ""
			if model == "direct" || model == "oldest" {
				parameters = fmt.Sprintf(`"parameters":{"sequence_id":7,"sequence_start":%v,"sequence_end":%v},`, i == 0, i == 2)
			}
			status, body := s.request("POST", "/v2/models/"+model+"/infer", `{"id":"`+id+`",`+parameters+
				`"inputs":[{"name":"IN","datatype":"INT32","shape":[1,3],"data":[1,2,3]}]}`)
			if status != http.StatusOK {
				t.Errorf("%s: status %d: %s", model, status, body)
			}
			run := tracedRun
			if model == "cached" && i > 0 {
				run = ""
			}
			want[model+"/1 "+id] = "HTTP_RECV_START HTTP_RECV_END model REQUEST_START QUEUE_START " + run + tracedSent
		}
	}
	s.stop()
	entries, _ := readTraces(t, path)
	order := strings.NewReplacer("INFER_RESPONSE_COMPLETE COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END ", tracedRun+"INFER_RESPONSE_COMPLETE ")
	for name := range want {
		if got := order.Replace(entries[name]); got != want[name] { // the order of these entries depends on the scheduler
			t.Errorf("%s: got  %s\nwant %s", name, got, want[name])
		}
	}
	if len(entries) != len(want) {
		t.Errorf("got %d traces, want %d", len(entries), len(want))
	}
}

// TestRequestsOfABatchHaveTheirOwnTraces executes four requests as one batch, stacked or not. Each
// must have a separate trace and queue time, and all must share the times of the batch.
func TestRequestsOfABatchHaveTheirOwnTraces(t *testing.T) {
	const config = `backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }
`
	const model = `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        batch = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]) for x in batch]
`
	path := filepath.Join(t.TempDir(), "trace.json")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"listed/config.pbtxt": config, "listed/1/model.py": model,
		"stacked/config.pbtxt": config + "parameters { key: \"BATCH_MODE\" value { string_value: \"stacked\" } }\n", "stacked/1/model.py": model,
	}), "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=triton,file="+path)
	var asking sync.WaitGroup
	for _, model := range []string{"listed", "stacked"} {
		for i := range 4 {
			asking.Go(func() {
				status, text := s.request("POST", "/v2/models/"+model+"/infer",
					fmt.Sprintf(`{"id":"%d","inputs":[{"name":"IN","datatype":"INT32","shape":[1,1],"data":[%d]}]}`, i, i))
				if status != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"data":[%d]`, i)) {
					t.Errorf("%s %d: status %d: %s", model, i, status, text)
				}
			})
		}
	}
	asking.Wait()
	s.stop()

	content, err := os.ReadFile(path)
	var list []traceEntry
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	names, times := map[int]string{}, map[int]map[string]int64{}
	for _, e := range list {
		if times[e.ID] == nil {
			times[e.ID] = map[string]int64{}
		}
		switch {
		case e.Model != "":
			names[e.ID] = e.Model + " " + e.Request
		case times[e.ID][e.Timestamps[0].Name] != 0:
			t.Errorf("%s has %s twice", names[e.ID], e.Timestamps[0].Name)
		default:
			times[e.ID][e.Timestamps[0].Name] = e.Timestamps[0].NS
		}
	}
	if len(times) != 8 {
		t.Fatalf("got %d traces, want 8", len(times))
	}
	batch, queued := map[string][4]int64{}, map[int64]bool{}
	for id, at := range times {
		model, _, _ := strings.Cut(names[id], " ")
		order := []int64{at["REQUEST_START"], at["QUEUE_START"], at["COMPUTE_START"], at["COMPUTE_INPUT_END"], at["COMPUTE_OUTPUT_START"], at["COMPUTE_END"]}
		if order[0] == 0 || !slices.IsSorted(order) || at["REQUEST_END"] < order[4] {
			t.Errorf("%s: times are %v", names[id], at)
		}
		run := [4]int64(order[2:])
		if other, ok := batch[model]; ok && other != run {
			t.Errorf("%s: the batch has the times %v, and %v for another request of it", names[id], run, other)
		}
		batch[model] = run
		queued[order[1]] = true
	}
	if len(queued) < 4 { // two queue times may be equal on a coarse clock
		t.Errorf("eight requests have %d times at which a queue took them", len(queued))
	}
}

// TestActivitiesOfBackends checks the traced activities of the tutorial's identity backend, as a
// plugin and linked in, in a file and in a collector.
func TestActivitiesOfBackends(t *testing.T) {
	for _, way := range []string{"plugins", "linked"} {
		t.Run(way, func(t *testing.T) {
			flags := []string{"--model-control-mode=explicit", "--load-model=identity", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"}
			path := filepath.Join(t.TempDir(), "trace.json")
			ask := func(s *runningServer) {
				t.Helper()
				status, body := s.request("POST", "/v2/models/identity/infer", `{"id":"r","inputs":[{"name":"INPUT1","datatype":"BYTES","shape":[1],"data":["x"]}]}`)
				if status != http.StatusOK {
					t.Fatalf("status %d: %s", status, body)
				}
				s.stop()
			}
			ask(startBackends(t, way, copyBackendModels(t), append(flags, "--trace-config=triton,file="+path)...))
			entries, _ := readTraces(t, path)
			want := "HTTP_RECV_START HTTP_RECV_END model REQUEST_START QUEUE_START CUSTOM_ACTIVITY_START CUSTOM_SINGLE_ACTIVITY CUSTOM_ACTIVITY_END " + tracedRun + tracedSent
			if got := entries["identity/1 r"]; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}

			var r spanReceiver
			collector := httptest.NewServer(&r)
			defer collector.Close()
			ask(startBackends(t, way, copyBackendModels(t), append(flags, "--trace-config=mode=opentelemetry", "--trace-config=opentelemetry,url="+collector.URL+"/v1/traces")...))
			r.mu.Lock()
			defer r.mu.Unlock()
			spans := r.below("", "")
			slices.Sort(spans) // the backend may start compute or the activity first
			if want := []string{"    CUSTOM_ACTIVITY", "    compute", "  identity r", "InferRequest"}; !slices.Equal(spans, want) {
				t.Errorf("got spans %q, want %q", spans, want)
			}
			for _, s := range r.spans {
				var names []string
				for _, e := range s.GetEvents() {
					names = append(names, e.GetName())
				}
				if got := strings.Join(names, " "); s.GetName() == "CUSTOM_ACTIVITY" && got != "CUSTOM_ACTIVITY_START CUSTOM_SINGLE_ACTIVITY CUSTOM_ACTIVITY_END" {
					t.Errorf("the span of the activity has %s", got)
				}
			}
		})
	}
}
