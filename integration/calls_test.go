package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// asksModel returns a model that runs the Python code in each request.
func asksModel(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "backend", "process", "testdata", "models", "asks", "model.py"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

const asksConfig = `
backend: "python"
max_batch_size: 8
input [ { name: "IN0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUT0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
`

// tell runs Python code in a model and returns the result.
func (s *runningServer) tell(model, text string) string {
	s.t.Helper()
	// Send the bytes as numbers, because encoding/json would encode them as base64.
	numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint([]byte(text)), " ", ","), "[]")
	body := fmt.Sprintf(`{"inputs":[{"name":"IN0","datatype":"UINT8","shape":[1,%d],"data":[%s]}]}`, len(text), numbers)
	status, reply := s.request("POST", "/v2/models/"+model+"/infer", body)
	if status != http.StatusOK {
		s.t.Fatalf("tell %s: status %d: %s", model, status, reply)
	}
	return string(outputBytes(s.t, reply))
}

// outputBytes returns the only output of a reply, which has type UINT8.
func outputBytes(t *testing.T, reply string) []byte {
	t.Helper()
	var answer struct{ Outputs []struct{ Data []uint16 } }
	if err := json.Unmarshal([]byte(reply), &answer); err != nil || len(answer.Outputs) != 1 {
		t.Fatalf("%v: %s", err, reply)
	}
	var data []byte
	for _, n := range answer.Outputs[0].Data {
		data = append(data, byte(n))
	}
	return data
}

// wantAsked runs Python code in a model and compares the result. A want that ends with "…" is a
// prefix.
func (s *runningServer) wantAsked(model, text, want string) {
	s.t.Helper()
	got := s.tell(model, text)
	if begin, ok := strings.CutSuffix(want, "…"); got != want && !(ok && strings.HasPrefix(got, begin)) {
		s.t.Errorf("%s: %s\n got %s\nwant %s", model, text, got, want)
	}
}

// scrape reads the metrics.
func (s *runningServer) scrape() string {
	s.t.Helper()
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.metrics))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("metrics: status %d, error %v: %s", response.StatusCode, err, text)
	}
	return string(text)
}

func (s *runningServer) wantSamples(lines ...string) {
	s.t.Helper()
	text := "\n" + s.scrape()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			s.t.Errorf("no line %q in the metrics:\n%s", line, text)
		}
	}
}

// sample returns the value of a series, which must exist.
func (s *runningServer) sample(series string) float64 {
	s.t.Helper()
	page := s.scrape()
	for line := range strings.Lines(page) {
		if text, found := strings.CutPrefix(line, series+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	s.t.Fatalf("no sample of %s in the metrics:\n%s", series, page)
	return 0
}

// countingModel resembles Triton's example of custom metrics.
const countingModel = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="requests_counted", description="Requests that were counted", kind=pb_utils.MetricFamily.COUNTER)
        self.mine = self.family.Metric(labels={"model": args["model_name"], "version": args["model_version"]})
        self.all = self.family.Metric(labels={"model": "all"})
        self.own = self.family.Metric(labels={"pid": str(os.getpid())})

    def execute(self, requests):
        self.mine.increment(len(requests))
        self.all.increment(len(requests))
        self.own.increment(len(requests))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

func (s *runningServer) count(model string, times int) {
	s.t.Helper()
	for range times {
		if status, reply := s.request("POST", "/v2/models/"+model+"/infer", `{"inputs":[{"name":"IN0","datatype":"UINT8","shape":[1,1],"data":[1]}]}`); status != http.StatusOK {
			s.t.Fatalf("status %d: %s", status, reply)
		}
	}
}

// TestMetricsOfModelsAreSharedAndEnd shares a metric family between models and instances. It checks
// the series after the kill of a stub and after the unload of a model.
func TestMetricsOfModelsAreSharedAndEnd(t *testing.T) {
	files := map[string]string{
		"a/config.pbtxt": asksConfig + "instance_group [ { count: 3 kind: KIND_CPU } ]", "a/1/model.py": countingModel,
		"b/config.pbtxt": asksConfig, "b/1/model.py": countingModel,
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit", "--load-model=*")
	s.count("a", 9)
	s.count("b", 2)
	s.wantSamples(
		"# HELP requests_counted Requests that were counted", "# TYPE requests_counted counter",
		`requests_counted{model="a",version="1"} 9`, `requests_counted{model="b",version="1"} 2`, `requests_counted{model="all"} 11`,
		`nv_inference_request_success{model="a",version="1"} 9`,
	)
	if n := strings.Count(s.scrape(), "requests_counted{pid="); n != 4 {
		t.Errorf("%d series of processes are shown, want 4", n)
	}

	// The series of only the killed stub disappear, and shared series stay.
	victim := s.stubs()[0]
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("without the series of a dead stub", func() bool {
		text := s.scrape()
		return !strings.Contains(text, fmt.Sprintf(`{pid="%d"}`, victim)) && strings.Count(text, "requests_counted{pid=") == 4
	})
	s.wantSamples(`requests_counted{model="all"} 11`)

	// A counter continues after an unload and a reload.
	for _, change := range []string{"unload", "load"} {
		if status, reply := s.request("POST", "/v2/repository/models/a/"+change, ""); status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", change, status, reply)
		}
		want := map[string]string{"unload": "UNAVAILABLE", "load": "READY"}[change]
		s.until(want, func() bool { return s.index()["a"].State == want })
		s.wantSamples(`requests_counted{model="a",version="1"} 9`)
	}
	s.count("a", 1)
	s.wantSamples(`requests_counted{model="a",version="1"} 10`, `requests_counted{model="all"} 12`)
}

func TestMetricsThatAreRefused(t *testing.T) {
	repository := writeFiles(t, map[string]string{"asks/config.pbtxt": asksConfig, "asks/1/model.py": asksModel(t)})
	const refused = "TritonModelException: Error when creating %s: Failed to process the request for model 'asks_0', message: %s"
	t.Run("limits", func(t *testing.T) {
		s := start(t, testkit.Python(t).Path, repository, "--metrics-config=custom_series_per_model=3", "--metrics-config=custom_series=100")
		s.wantAsked("asks", "f = pb.MetricFamily('few', 'd', pb.MetricFamily.GAUGE); ms = [f.Metric({'n': str(n)}) for n in range(3)]", "done")
		s.wantAsked("asks", "f.Metric({'n': '3'})", fmt.Sprintf(refused, "Metric",
			"model 'asks' has 3 series of custom metrics, more would be beyond the limit (--metrics-config=custom_series_per_model=3)"))
		s.wantAsked("asks", "f.Metric({'n': '1'}).value()", "0.0")
		s.wantAsked("asks", "pb.MetricFamily('nv_inference_count', 'd', pb.MetricFamily.COUNTER)", fmt.Sprintf(refused, "MetricFamily",
			"Family name already exists: 'nv_inference_count' is a metric of the server itself"))
		s.wantSamples(`few{n="2"} 0`)
	})
	t.Run("off", func(t *testing.T) {
		s := start(t, testkit.Python(t).Path, repository, "--allow-metrics=false")
		s.wantAsked("asks", "pb.MetricFamily('f', 'd', pb.MetricFamily.GAUGE)", fmt.Sprintf(refused, "MetricFamily", "metrics not supported"))
	})
	t.Run("flag", func(t *testing.T) {
		s := launch(t, testkit.Python(t).Path, repository, "--metrics-config=custom_series=none")
		if status := s.wait(startLimit); status == 0 || !s.prints(`custom_series=none: it is "none", want a number of series`) {
			t.Errorf("status %d, log:\n%s", status, s.log)
		}
	})
}

// loadingRepository creates a repository with a model that loads others, and the models to load.
func loadingRepository(t *testing.T) string {
	trivial := "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
	nested := func(call string) string {
		return "import triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n    def initialize(self, args):\n        " + call + "\n"
	}
	files := map[string]string{"asks/1/model.py": asksModel(t), "other/1/model.py": trivial, "broken/1/model.py": "lorem_ipsum\n",
		"outer/1/model.py": nested("pb_utils.load_model('other')"), "own/1/model.py": nested("pb_utils.load_model('own')"),
		"ring_a/1/model.py": nested("pb_utils.load_model('ring_b')"), "ring_b/1/model.py": nested("pb_utils.load_model('ring_a')"),
		"slow/1/model.py": nested("import time; time.sleep(2)")}
	for path := range files {
		files[strings.Split(path, "/")[0]+"/config.pbtxt"] = asksConfig
	}
	return writeFiles(t, files)
}

func TestModelsLoadModels(t *testing.T) {
	const failed = "TritonModelException: Failed to load model: Failed to process the request for model 'asks_0', message: "
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, loadingRepository(t), "--model-control-mode=explicit", "--load-model=asks", "--model-load-thread-count=1")
			for _, row := range [][2]string{
				{"pb.is_model_ready('asks'), pb.is_model_ready('asks', '1'), pb.is_model_ready('other')", "(True, True, False)"},
				{"pb.is_model_ready('nope')", "TritonModelException: Failed to check model readiness: Failed to process the request for model 'asks_0', message: Request for unknown model: 'nope' is not found"},
				{"pb.is_model_ready('asks', '7')", "TritonModelException: Failed to check model readiness: …"},
				{"pb.load_model('other'), pb.is_model_ready('other')", "(None, True)"},
				{"pb.unload_model('other')", "None"},
				{"pb.unload_model('other'), pb.unload_model('nope')", "(None, None)"},
				{"pb.load_model('nope')", failed + "failed to load 'nope', failed to poll from model repository"},
				{"pb.load_model('broken')", failed + "load failed for model 'broken': version 1 is at UNAVAILABLE state: Internal: NameError: name 'lorem_ipsum' is not defined\n\nAt:\n  …"},
				{"pb.is_model_ready('broken')", "False"},
				{"pb.load_model('outer'), pb.is_model_ready('other')", "(None, True)"},
				// These loads would wait for themselves.
				{"pb.load_model('own')", failed + "load failed for model 'own': version 1 is at UNAVAILABLE state: Internal: TritonModelException: Failed to load model: Failed to process the request for model 'own_0', message: failed to load 'own', the load of 'own' waits for this call and would wait for itself: own -> own\n…"},
				{"pb.load_model('ring_a')", failed + "load failed for model 'ring_a': …"},
				// The model reloads itself: the old version responds to this request, and the new
				// version to the next.
				{"marked = True", "done"},
				{"pb.load_model('asks')", "None"},
				{"'marked' in globals()", "True"}, // nothing has changed, so the model was not reloaded
				{"open(pb.get_model_dir() + '/touched', 'w').close()", "None"},
				{"pb.load_model('asks')", "None"},
				{"'marked' in globals()", "False"},
				// Load in parallel, while other models serve requests and this thread continues.
				{"threads = [threading.Thread(target=pb.load_model, args=(name,)) for name in ('slow', 'other', 'outer', 'other')]\n[t.start() for t in threads]", "done"},
				{"pb.is_model_ready('slow')", "False"},
				{"[t.join() for t in threads], pb.is_model_ready('slow'), pb.is_model_ready('outer')", "([None, None, None, None], True, True)"},
			} {
				s.wantAsked("asks", row[0], row[1])
			}
			s.wantAsked("asks", "pb.unload_model('asks')", "None") // unloads itself while it executes
			s.until("unloaded", func() bool { return s.index()["asks"].State == "UNAVAILABLE" })
		})
	}
}

func TestModelsLoadNoModels(t *testing.T) {
	files := map[string]string{"asks/config.pbtxt": asksConfig, "asks/1/model.py": asksModel(t) + `
    def __init__(self):
        for call in (lambda: pb_utils.load_model("x"), lambda: pb_utils.unload_model("x"), lambda: pb_utils.is_model_ready("asks")):
            try:
                call()
            except pb_utils.TritonModelException as error:
                print("AT START", error)
`}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files))
	for _, what := range []string{"load model", "unload model", "check model readiness"} {
		want := "AT START Failed to " + what + ": Failed to process the request for model 'asks_0', message: Server not ready"
		if !s.prints(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	const refused = "Failed to process the request for model 'asks_0', message: explicit model load / unload is not allowed if polling is enabled"
	s.wantAsked("asks", "pb.load_model('asks')", "TritonModelException: Failed to load model: "+refused)
	s.wantAsked("asks", "pb.unload_model('asks')", "TritonModelException: Failed to unload model: "+refused)
	s.wantAsked("asks", "pb.is_model_ready('asks')", "True")
}

// TestModelsLogByLevel checks which log lines of models appear for each level and each log setting.
// Printed output must always appear.
func TestModelsLogByLevel(t *testing.T) {
	files := map[string]string{"asks/config.pbtxt": asksConfig, "asks/1/model.py": asksModel(t)}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--log-info=false", "--log-warning=true")
	s.wantAsked("asks", `
import logging, os, sys
def say(mark):
    logger = pb.Logger
    logger.log_info("info " + mark)
    logger.log_warn("warn " + mark)
    logger.log_error("error\n\"" + mark)
    logger.log_verbose("verbose " + mark)
    logger.log("level " + mark, level=logger.WARNING)
    print("print " + mark)
    print("stderr " + mark, file=sys.stderr, flush=True)
    logging.warning("logging %s", mark)
    os.system("echo system " + mark)
`, "done")
	pid := s.cmd.Process.Pid
	lines := func(mark string) string {
		s.wantAsked("asks", fmt.Sprintf("say(%q)", mark), "None")
		s.wantAsked("asks", fmt.Sprintf("pb.Logger.log_error('end of ' + %q)", mark), "None")
		s.until("logged", func() bool {
			text := s.log.String()
			return strings.Contains(text, "end of "+mark) && strings.Contains(text, "system "+mark)
		})
		var found []string
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, mark) && !strings.Contains(line, "end of") {
				found = append(found, line)
			}
		}
		return strings.Join(found, "")
	}
	want := func(text, pattern string, times int) {
		t.Helper()
		if n := len(regexp.MustCompile("(?m)"+pattern).FindAllString(text, -1)); n != times {
			t.Errorf("%d lines match %s, want %d:\n%s", n, pattern, times, text)
		}
	}
	stamp := fmt.Sprintf(`\d{4} \d\d:\d\d:\d\d\.\d{6} %d `, pid)
	printed := func(text, mark string) {
		t.Helper()
		for _, what := range []string{"print ", "stderr ", "WARNING:root:logging ", "system "} {
			want(text, "^"+what+mark+"$", 1)
		}
	}
	text := lines("first")
	printed(text, "first")
	want(text, "^W"+stamp+`asked:6\] "warn first"$`, 1)
	want(text, "^E"+stamp+`asked:7\] "error\\n\\"first"$`, 1)
	want(text, "^W"+stamp+`asked:9\] "level first"$`, 1)
	want(text, `info first|verbose first`, 0)

	change := func(settings string) {
		t.Helper()
		if status, reply := s.request("POST", "/v2/logging", settings); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, reply)
		}
	}
	change(`{"log_info":true,"log_warning":false,"log_error":false,"log_verbose_level":1}`)
	change(`{"log_error":true}`)
	text = lines("second")
	printed(text, "second")
	want(text, "^I"+stamp+`asked:5\] "info second"$`, 1)
	want(text, "^I"+stamp+`asked:8\] "verbose second"$`, 1)
	want(text, `warn second|level second`, 0)

	change(`{"log_info":true,"log_warning":true,"log_verbose_level":0,"log_format":"ISO8601"}`)
	text = lines("third")
	want(text, fmt.Sprintf(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I %d asked:5\] "info third"$`, pid), 1)
	want(text, `verbose third`, 0)

	// A stub that starts later uses the same settings.
	if err := unix.Kill(s.stubs()[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	change(`{"log_info":false,"log_format":"default"}`)
	s.until("back", func() bool {
		status, _ := s.request("GET", "/v2/models/asks/ready", "")
		return status == http.StatusOK
	})
	s.wantAsked("asks", "pb.Logger.log_info('info later'); pb.Logger.log_warn('warn later')", "done")
	s.until("logged", func() bool { return strings.Contains(s.log.String(), "warn later") })
	want(s.log.String(), `info later`, 0)
}

// TestManyModelsLogAtOnce checks that concurrent log lines of several models are neither lost,
// mixed nor reordered.
func TestManyModelsLogAtOnce(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = asksConfig, asksModel(t)
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files))
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() {
			s.wantAsked(name, fmt.Sprintf("[pb.Logger.log_info('%s says %%d' %% n) for n in range(500)].count(None)", name), "500")
			s.wantAsked(name, fmt.Sprintf("[print('%s prints %%d' %% n) for n in range(500)].count(None)", name), "500")
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b", "c"} {
		for _, verb := range []string{"says", "prints"} {
			s.until("logged", func() bool { return strings.Count(s.log.String(), fmt.Sprintf("%s %s ", name, verb)) >= 500 })
			at := -1
			for n := range 500 {
				line := fmt.Sprintf("\n%s %s %d\n", name, verb, n)
				if verb == "says" {
					line = fmt.Sprintf("\"%s %s %d\"\n", name, verb, n)
				}
				next := strings.Index(s.log.String(), line)
				if next <= at {
					t.Fatalf("%s %s %d is missing or stands before the line before it", name, verb, n)
				}
				at = next
			}
		}
	}
}
