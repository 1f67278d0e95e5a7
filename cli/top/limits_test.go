package top

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/server/status"
)

// ofManyModels is the number of models that a server may have.
const ofManyModels = 10_000

// The tests of this file are internal because the limits of replies are.

// TestTheStatusOfManyModelsIsRead checks that a status of 10,000 models with requests stays below
// the limits.
func TestTheStatusOfManyModelsIsRead(t *testing.T) {
	times := status.Times{Counts: make([]uint64, 20), Sum: 12345.678901}
	for i := range times.Counts {
		times.Counts[i] = 1_234_567
	}
	share := &status.Percentiles{P50: 0.001234567890, P90: 0.00234567890, P95: 0.0034567890, P99: 0.0098765432}
	period := status.Period{Seconds: 60, Covered: 59.99999, Succeeded: 12345, Failed: 12, Inferences: 12345, Executions: 1234, Request: share, Queue: share, Infer: share}
	since := time.Now()
	one := status.Instance{Name: "a_model_with_a_name_0_0", State: "ready", Since: &since, Kind: "CPU", PID: 12345, Resident: 123456789, Arena: 1234567}
	s := status.Snapshot{Versions: make([]status.Version, ofManyModels)}
	for i := range s.Versions {
		s.Versions[i] = status.Version{
			Model: fmt.Sprintf("a_model_with_a_name_%d", i), Version: 1, State: "READY", Backend: "python", Groups: []status.Group{{Name: "a_model_with_a_name", Kind: "CPU", Count: 2}},
			Counters: status.Counters{Succeeded: 123456, Failed: map[string]int64{"OTHER": 1}, Inferences: 12345, Executions: 12345},
			Latency:  &status.Latency{Request: times, Queue: times, Input: times, Infer: times, Output: times}, Recent: []status.Period{period, period, period},
			Instances: []status.Instance{one, one},
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > client.MaxReply*2/3 || elements(text) > maxStatusElements*2/3 {
		t.Errorf("got %d bytes with %d elements, want at most two thirds of the limits", len(text), elements(text))
	}
	var again status.Snapshot
	if err := decode(text, &again, maxStatusElements); err != nil || len(again.Versions) != ofManyModels {
		t.Errorf("got %d versions, %v; want %d", len(again.Versions), err, ofManyModels)
	}
}

// TestTheMetricsOfManyModelsAreRead checks that the metrics of 10,000 models with requests are
// read, which are larger than other replies may be.
func TestTheMetricsOfManyModelsAreRead(t *testing.T) {
	page, to := io.Pipe()
	size := 0
	go func() {
		defer to.Close()
		write := func(format string, args ...any) {
			n, _ := fmt.Fprintf(to, format+"\n", args...)
			size += n
		}
		write("# TYPE nv_cpu_utilization gauge\nnv_cpu_utilization 0.25")
		for _, family := range []string{"nereid_inference_request_seconds", "nereid_inference_queue_seconds", "nereid_inference_infer_seconds", "nereid_inference_input_seconds"} {
			write("# HELP %s seconds\n# TYPE %[1]s histogram", family)
			of := fmt.Sprintf(`_bucket{model="a_model_with_a_name_NUMBER",version="1",le="+Inf"} 20
%s_sum{model="a_model_with_a_name_NUMBER",version="1"} 12.5
%[1]s_count{model="a_model_with_a_name_NUMBER",version="1"} 20`, family)
			for bucket := 18; bucket >= 0; bucket-- {
				of = fmt.Sprintf("_bucket{model=\"a_model_with_a_name_NUMBER\",version=\"1\",le=\"%d\"} %[1]d\n%s", bucket, family) + of
			}
			for i := range ofManyModels {
				write("%s%s", family, strings.ReplaceAll(of, "NUMBER", strconv.Itoa(i)))
			}
		}
	}()
	m, err := readMetrics(page)
	if err != nil {
		t.Fatal(err)
	}
	last := m.versions[key{"", "a_model_with_a_name_9999", "1"}]
	if size <= client.MaxReply || len(m.versions) != ofManyModels || last == nil || len(last.request) != 20 || len(last.queue) != 20 || *m.cpu != 0.25 || !m.nereid {
		t.Errorf("got %d versions of %d bytes, the last %+v; want %d of more than %d", len(m.versions), size, last, ofManyModels, client.MaxReply)
	}
}

// TestHostileRepliesAreRefused checks replies that would take many times their length, or that do
// not end.
func TestHostileRepliesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		most, want int
	}{
		{"none", `{"a": {"b": "[,,,]"}, "c": "\"[,"}`, 0, 0},
		{"nested", `{"a": [[1, 2], [], {"b": 1, "c": [null]}]}`, 6, 3 + 2 + 1 + 1},
		{"in strings", `["a,b", "]", "\\", "c"]`, 4, 4},
		{"cut", `["a,b`, 4, 1},
		{"unopened", `]},`, 4, 0},
	} {
		if got := elements([]byte(c.text)); got != c.want {
			t.Errorf("%s: got %d elements, want %d", c.name, got, c.want)
		}
	}
	f := &found{}
	for _, element := range []string{"{}", "null", "1"} {
		err := decode([]byte("["+strings.Repeat(element+",", maxElements)+element+"]"), &f.index, maxElements)
		if err == nil || !strings.Contains(err.Error(), "at most 500000 are read") || len(f.index) > 0 {
			t.Errorf("%s: got %d entries, %v; want that there are too many", element, len(f.index), err)
		}
	}
	for name, page := range map[string]string{
		"samples": strings.Repeat("nv_cpu_utilization 1\n", maxLabels+1),
		"labels":  strings.Repeat(`nv_gpu_utilization{`+strings.Repeat(`a="",`, 10_000)+"} 1\n", maxLabels/10_000),
	} {
		if m, err := readMetrics(strings.NewReader(page)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, m)
		}
	}
	long := "a_model_has_it{a=\"" + strings.Repeat("1", 3*maxLine) + "\"} 1\n"
	for _, page := range []string{long + "nv_cpu_utilization 0.5\n" + long, "nv_cpu_utilization 0.5\n" + long[:2*maxLine], "nv_cpu_utilization 0.5"} {
		if m, err := readMetrics(strings.NewReader(page)); err != nil || m.cpu == nil || *m.cpu != 0.5 {
			t.Errorf("beside a long line: got %+v, %v", m, err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := []byte(strings.Repeat(" ", 1<<20)); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	o := &options{}
	if text, err := o.endpoint(mustParse(t, server.URL)).Ask(t.Context(), http.MethodGet, "/", nil); err == nil || err.Error() != "the reply has more than 64 MiB" {
		t.Errorf("got %d bytes, %v; want that the reply is too long", len(text), err)
	}
}

// TestFailedReloadsAreNotTheState checks that the reason of a version that serves is shown as that
// of its last reload, without the separator of versions.
func TestFailedReloadsAreNotTheState(t *testing.T) {
	v := many(1)
	v.Models[0].Reason = "version 1 is at UNAVAILABLE state: Internal: SyntaxError: invalid syntax;"
	for _, text := range []string{plain(v, &ui{}), fmt.Sprint(details(&v.Models[0]))} {
		if !strings.Contains(text, "the last reload") || strings.Contains(text, "is READY") || strings.Contains(text, "syntax;") {
			t.Errorf("got %s", text)
		}
	}
}
