package tracing

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
)

// received contains the spans that a collector has received.
type received struct {
	mu       sync.Mutex
	resource []string
	spans    []*tracepb.Span
}

// ServeHTTP implements http.Handler.
func (r *received) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var export collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || q.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(q.URL, err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range export.GetResourceSpans() {
		r.resource = attributesText(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
}

func attributesText(list []*commonpb.KeyValue) (text []string) {
	for _, a := range list {
		value := a.GetValue().GetStringValue()
		if a.GetValue().GetStringValue() == "" {
			value = fmt.Sprint(a.GetValue().GetIntValue())
		}
		text = append(text, a.GetKey()+"="+value)
	}
	slices.Sort(text)
	return text
}

// below formats the spans under a parent, each with its own children.
func (r *received) below(parent []byte, indent string) (lines []string) {
	for _, s := range r.spans {
		if string(s.GetParentSpanId()) != string(parent) {
			continue
		}
		line := indent + s.GetName()
		for _, e := range s.GetEvents() {
			line += " " + e.GetName()
		}
		lines = append(lines, line+" "+strings.Join(attributesText(s.GetAttributes()), " "))
		lines = append(lines, r.below(s.GetSpanId(), indent+"  ")...)
	}
	return lines
}

func collecting(t *testing.T, change func(*Config)) (*Tracer, *received) {
	t.Helper()
	r := &received{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	c := Config{
		Mode: OpenTelemetry, Level: Timestamps, Rate: 1, Count: -1, Now: clock(), Log: zerolog.Nop(),
		Settings: []Pair{{SettingURL, strings.TrimPrefix(server.URL, "http://") + "/v1/traces"}, {SettingResource, "a=b"}, {SettingResource, "service.name=mine"}},
	}
	if change != nil {
		change(&c)
	}
	tracer, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tracer, r
}

func TestSpansOfATree(t *testing.T) {
	tracer, r := collecting(t, nil)
	headers := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
	root := tracer.Sample("ens", false, func(name string) (string, bool) { v, ok := headers[name]; return v, ok })
	root.Stamp(trace.HTTPReceiveStart)
	root.Begin("ens", 1, "r", 2000)
	root.Queued(2100)
	step := root.Child()
	step.Begin("bls", 2, "r", 2200)
	inner := step.Child()
	inner.Begin("m", 3, "", 2300)
	text := inner.Text()
	for range 2 { // a request that its model has rescheduled
		inner.Given()
		inner.Executed(2400, 2500, 2600, 2700)
	}
	inner.Responded(true)
	step.Refused()
	root.Responded(true)
	root.Finish()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	client := []byte("\xb7\xad\x6b\x71\x69\x20\x33\x31")
	compute := "COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END "
	want := []string{
		"InferRequest HTTP_RECV_START INFER_RESPONSE_COMPLETE ",
		"  ens REQUEST_START QUEUE_START REQUEST_END triton.model_name=ens triton.model_version=1 triton.request_id=r triton.trace_id=1 triton.trace_parent_id=0",
		"    bls REQUEST_START REQUEST_END triton.model_name=bls triton.model_version=2 triton.request_id=r triton.trace_id=2 triton.trace_parent_id=1",
		"      m REQUEST_START REQUEST_END triton.model_name=m triton.model_version=3 triton.trace_id=3 triton.trace_parent_id=2",
		"        compute " + compute, "        compute " + compute,
	}
	if got := r.below(client, ""); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range r.spans {
		if got := fmt.Sprintf("%x %s %v", s.GetTraceId(), s.GetTraceState(), s.GetKind()); got != "0af7651916cd43dd8448eb211c80319c a=b SPAN_KIND_SERVER" {
			t.Errorf("span %s is of %s", s.GetName(), got)
		}
		if s.GetName() == "m" && text != fmt.Sprintf(`3{"traceparent":"00-%x-%x-01","tracestate":"a=b"}`, s.GetTraceId(), s.GetSpanId()) {
			t.Errorf("the model of span %x was told of %s", s.GetSpanId(), text)
		}
	}
	if got := strings.Join(r.resource, " "); !strings.Contains(got, "a=b") || !strings.Contains(got, "service.name=mine") || !strings.Contains(got, "telemetry.sdk.language=go") {
		t.Errorf("the resource is %s", got)
	}
}

func TestContextsOfClientsAreTraced(t *testing.T) {
	tracer, r := collecting(t, func(c *Config) { c.Rate, c.Count = 0, 0 })
	if !tracer.On() {
		t.Fatal("the tracer is off, with requests that bring a context to be traced")
	}
	for header, want := range map[string]bool{
		"": false, "00-xyz-b7ad6b7169203331-01": false, "00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00": true,
	} {
		root := tracer.Sample("m", true, func(name string) (string, bool) { return header, name == "traceparent" })
		if root.Finish(); (root != nil) != want {
			t.Errorf("traceparent %q: traced is %v, want %v", header, root != nil, want)
		}
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.spans) != 1 {
		t.Errorf("the collector got %d spans, want 1", len(r.spans))
	}
}

func TestSettingsOfTheSpanProcessor(t *testing.T) {
	tracer, r := collecting(t, func(c *Config) {
		c.Settings = append(c.Settings, Pair{SettingQueueSize, "7"}, Pair{"foo", "bar"})
		c.Getenv = func(name string) string {
			return map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_SCHEDULE_DELAY": "90000"}[name]
		}
	})
	url := tracer.config.Settings[0].Value
	want := "level=TIMESTAMPS rate=1 count=-1 mode=opentelemetry url=" + url +
		" resource=a=b resource=service.name=mine bsp_max_queue_size=7 foo=bar bsp_schedule_delay=90000 bsp_max_export_batch_size=512"
	if got := shown(tracer, ""); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	request(tracer, "m", "r")
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.spans) != 2 || len(r.spans[0].GetTraceId()) != 16 {
		t.Errorf("the collector got spans %v, want two of a trace of their own", r.spans)
	}
}

func TestWrongSettingsOfModes(t *testing.T) {
	for _, c := range []Config{
		{Mode: "x"}, {Settings: []Pair{{SettingFrequency, "x"}}},
		{Mode: OpenTelemetry, Settings: []Pair{{SettingResource, "x"}}}, {Mode: OpenTelemetry, Settings: []Pair{{SettingDelay, "x"}}},
	} {
		c.Now = clock()
		if _, err := New(c); err == nil {
			t.Errorf("%+v: got no error", c)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("without a clock: got no error")
	}
}

// TestACollectorThatRefuses checks that errors of a collector affect neither requests nor the
// shutdown.
func TestACollectorThatRefuses(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var log strings.Builder
	tracer, _ := collecting(t, func(c *Config) {
		c.Settings, c.Log = []Pair{{SettingURL, server.URL + "/v1/traces"}}, zerolog.New(&log)
	})
	requests(tracer, "m", 3)
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "traces are lost") {
		t.Errorf("the log says nothing of lost traces: %s", log.String())
	}
}

// TestActivitiesOfBackendsMakeSpans checks which activities become spans, as in Triton: pairs of
// names that end in _START and _END, with the activities between them.
func TestActivitiesOfBackendsMakeSpans(t *testing.T) {
	tracer, r := collecting(t, nil)
	headers := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	root := tracer.Sample("m", false, func(name string) (string, bool) { v, ok := headers[name]; return v, ok })
	root.Begin("m", 1, "", 1)
	root.Given()
	for _, name := range []string{"alone", "A_START", "in A", "B_START", "in B", "any_END", "A_END", "none_END", "_START", "REQUEST_START", "left open_START"} {
		root.Activity(name, 2)
	}
	root.Executed(3, 4, 5, 6)
	root.Responded(true)
	root.Finish()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"InferRequest INFER_RESPONSE_COMPLETE ",
		"  m REQUEST_START alone none_END _START REQUEST_END triton.model_name=m triton.model_version=1 triton.trace_id=1 triton.trace_parent_id=0",
		"    compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END ",
		"    A A_START in A A_END ", "      B B_START in B any_END ", "    REQUEST REQUEST_START ", "      left open left open_START ",
	}
	if got := r.below([]byte("\xb7\xad\x6b\x71\x69\x20\x33\x31"), ""); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var model, open *tracepb.Span
	for _, s := range r.spans {
		switch s.GetName() {
		case "m":
			model = s
		case "left open":
			open = s
		}
	}
	if model == nil || open == nil || open.GetEndTimeUnixNano() != model.GetEndTimeUnixNano() {
		t.Error("a span that its backend has not ended does not end with its model's")
	}
}

// TestActivitiesAreDeep checks that spans nested more deeply than allowed become events of the
// deepest span.
func TestActivitiesAreDeep(t *testing.T) {
	var entries []trace.Entry
	for _, suffix := range []string{"_START", "_END"} {
		for i := range mostOpen + 6 {
			n := i
			if suffix == "_END" {
				n = mostOpen + 5 - i
			}
			entries = append(entries, trace.Entry{Name: trace.Name(fmt.Sprint(n, suffix)), Own: true})
		}
	}
	_, model, _, own := divide(entries)
	if len(model) != 0 || len(own) != 1 {
		t.Fatalf("got %d events of the model and %d spans, want 0 and 1", len(model), len(own))
	}
	for n := range mostOpen {
		want, below := []string{fmt.Sprint(n, "_START"), fmt.Sprint(n, "_END")}, 1
		if n == mostOpen-1 {
			want, below = slices.Insert(want, 1, "64_START", "65_START", "66_START", "67_START", "68_START", "69_START", "69_END", "68_END", "67_END", "66_END", "65_END", "64_END"), 0
		}
		var got []string
		for _, e := range own[0].events {
			got = append(got, string(e.Name))
		}
		if !slices.Equal(got, want) || len(own[0].below) != below {
			t.Errorf("span %d: got %q and %d spans below, want %q and %d", n, got, len(own[0].below), want, below)
		}
		own = own[0].below
	}
}

// TestIDsOfRequestsAreCutInSpans checks that a span has only the beginning of a long request id,
// because spans are kept until the collector accepts them.
func TestIDsOfRequestsAreCutInSpans(t *testing.T) {
	tracer, r := collecting(t, nil)
	root := tracer.Sample("m", false, func(string) (string, bool) { return "", false })
	root.Begin("m", 1, strings.Repeat("x", infer.MaxEcho+1), 1)
	root.Responded(true)
	root.Finish()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.spans {
		for _, a := range s.GetAttributes() {
			if n := len(a.GetValue().GetStringValue()); a.GetKey() == "triton.request_id" && n == infer.MaxEcho {
				return
			}
		}
	}
	t.Errorf("no span has an id of %d bytes", infer.MaxEcho)
}
