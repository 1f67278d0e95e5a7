package integration

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// command runs a subcommand and returns its exit status and its output.
func command(t *testing.T, arguments ...string) (status int, stdout, stderr string) {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, arguments...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return status, out.String(), errs.String()
}

// TestInterruptsEndCommands interrupts commands while they wait for a file. One interrupt must end
// `nereid check`, which has not started anything yet. `nereid bench` may take a second one.
func TestInterruptsEndCommands(t *testing.T) {
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": checkedConfig, "m/1/model.py": checking("B")})
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for again, arguments := range map[bool][]string{
		false: {"check", filepath.Join(repository, "m"), "--try", "--request=" + pipe},
		true:  {"bench", "m", "--compare=" + pipe},
	} {
		c := exec.Command(binary, arguments...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once the command has opened the pipe
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Process.Signal(os.Interrupt)
		if !testkit.Within(10*time.Second, func() bool {
			if again {
				_ = c.Process.Signal(os.Interrupt)
			}
			return len(ended) > 0
		}) {
			t.Errorf("%q goes on", arguments)
			_ = c.Process.Kill()
		}
		if err := <-ended; err == nil {
			t.Errorf("%q ends well", arguments)
		}
		_ = writer.Close()
	}
}

// checking returns a model for the tests of `nereid check`. It returns its input A under another
// name.
func checking(output string) string {
	return "import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n" +
		"        return [pb_utils.InferenceResponse([pb_utils.Tensor(\"" + output + "\", pb_utils.get_input_tensor_by_name(r, \"A\").as_numpy())]) for r in requests]\n"
}

const checkedConfig = "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: \"B\" data_type: TYPE_FP32 dims: [ -1 ] }\n"

// TestCheckImportsAndTries checks that `nereid check --try` loads models in real processes, sends
// them requests, and reports faulty code with file and line.
func TestCheckImportsAndTries(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"good/config.pbtxt": checkedConfig, "good/1/model.py": checking("B"),
		"warm/config.pbtxt": checkedConfig + "model_warmup { name: \"w\" batch_size: 1 inputs { key: \"A\" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } }\n",
		"warm/1/model.py":   checking("B"),
		"auto/1/model.py": checking("B") + "\n    @staticmethod\n    def auto_complete_config(config):\n        config.add_input({\"name\": \"A\", \"data_type\": \"TYPE_INT8\", \"dims\": [2]})\n" +
			"        config.add_output({\"name\": \"B\", \"data_type\": \"TYPE_INT8\", \"dims\": [2]})\n        return config\n",
		"odd/config.pbtxt": checkedConfig, "odd/1/model.py": checking("C"),
		"nameless/config.pbtxt": checkedConfig, "nameless/1/model.py": strings.Replace(checking("B"), "return [", "nothing\n        return [", 1),
		"raises/config.pbtxt": checkedConfig, "raises/1/model.py": checking("B") + "\n    def initialize(self, args):\n        raise ValueError('no')\n",
		"refuses/config.pbtxt": checkedConfig, "refuses/1/model.py": strings.Replace(checking("B"), "return [", "raise KeyError('never')\n        return [", 1),
		"syntax/config.pbtxt": checkedConfig, "syntax/1/model.py": checking("B") + "\n    def f(:\n",
	})
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	status, out, stderr := command(t, "check", repository, "--try", "--json", python)
	var got struct {
		Models []struct {
			Name, Tried string
			Loaded      bool
		}
		Findings []struct {
			Severity, Rule, Model, File, Text, Remedy string
			Line                                      int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	var tried, found []string
	for _, m := range got.Models {
		if m.Loaded {
			tried = append(tried, m.Name+" "+m.Tried)
		}
	}
	if want := []string{"auto request", "good request", "nameless failed", "odd request", "refuses failed", "warm warm-up"}; !slices.Equal(tried, want) {
		t.Errorf("loaded and tried: got %q, want %q", tried, want)
	}
	for _, f := range got.Findings {
		found = append(found, strings.Join([]string{f.Severity, f.Rule, strings.TrimPrefix(f.File, repository+"/"), f.Text}, " "))
	}
	want := []string{
		"error try nameless/1/model.py Failed to process the request(s) for model 'nameless_0', message: NameError: name 'nothing' is not defined",
		"warning log odd/config.pbtxt output 'C' is not in the configuration of model 'odd'",
		"error import raises/1/model.py Internal: ValueError: no",
		"error try refuses/1/model.py Failed to process the request(s) for model 'refuses_0', message: KeyError: 'never'",
		"error syntax syntax/1/model.py SyntaxError: invalid syntax",
	}
	if status != 1 || !slices.EqualFunc(found, want, strings.HasPrefix) {
		t.Errorf("got status %d and\n%s\nwant\n%s", status, strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range got.Findings { // the fault is in the code
		if f.Model == "nameless" && strings.Contains(f.Remedy, "random") || f.Model == "refuses" && !strings.Contains(f.Remedy, "random values") {
			t.Errorf("%s: got remedy %q", f.Model, f.Remedy)
		}
	}
	for _, f := range got.Findings {
		if line := map[string]int{"odd": 3, "nameless": 6, "raises": 9, "refuses": 6, "syntax": 8}[f.Model]; f.Line != line && f.Model != "syntax" {
			t.Errorf("%s: got line %d, want %d", f.Model, f.Line, line)
		}
	}
	if status, out, stderr := command(t, "check", repository+"/good", "--try", python); status != 0 || out != "1 model: 0 errors, 0 warnings, 0 differences from Triton\n" {
		t.Errorf("a good model: got status %d, %s%s", status, out, stderr)
	}
}

// TestCheckTriesSequencesAndMetrics checks that `nereid check --try` accepts examples that need
// sequences or custom metrics.
func TestCheckTriesSequencesAndMetrics(t *testing.T) {
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	examples := filepath.Join(testkit.Root(t), "examples", "models")
	for _, name := range []string{"custom_metrics", "iterative_countdown", "sequence_counter"} {
		if status, out, stderr := command(t, "check", filepath.Join(examples, name), "--try", python); status != 0 {
			t.Errorf("%s: got status %d, %s%s", name, status, out, stderr)
		}
	}
	directory := writeFiles(t, map[string]string{
		"start.json": `{"parameters": {"sequence_id": 3, "sequence_start": true}, "inputs": [{"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [1]}]}`,
		"later.json": `{"parameters": {"sequence_id": 3}, "inputs": [{"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [1]}]}`,
	})
	for file, want := range map[string]int{"start.json": 0, "later.json": 1} {
		if status, out, stderr := command(t, "check", filepath.Join(examples, "sequence_counter"), "--try", "--request", filepath.Join(directory, file), python); status != want {
			t.Errorf("%s: got status %d, want %d, %s%s", file, status, want, out, stderr)
		}
	}
}

// TestTheServerWarnsAsCheckDoes checks that the server logs each finding of `nereid check` exactly
// once, and that --import adds no findings.
func TestTheServerWarnsAsCheckDoes(t *testing.T) {
	const shaped = "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ 2 ] }\noutput { name: \"B\" data_type: TYPE_FP32 dims: [ 2 ] label_filename: \"l.txt\" }\n"
	files := map[string]string{
		"twice/config.pbtxt":   shaped + "output { name: \"B\" data_type: TYPE_FP32 dims: [ 2 ] }\n",
		"counted/config.pbtxt": shaped + "instance_group { count: -1 kind: KIND_CPU }\n",
		"joined/config.pbtxt":  shaped + "dynamic_batching { }\n",
		"warm/config.pbtxt":    shaped + "model_warmup { name: \"w\" inputs { key: \"A\" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } }\n",
		"labels/config.pbtxt":  shaped, "labels/2/model.py": checking("B"),
	}
	for _, model := range []string{"twice", "counted", "joined", "warm", "labels"} {
		files[model+"/1/model.py"], files[model+"/l.txt"] = checking("B"), "x\ny\n"
	}
	files["labels/l.txt"] = "x\n"
	files["labels/config.pbtxt"] += "version_policy { all { } }\n"
	repository := writeFiles(t, files)
	s := start(t, testkit.Python(t).Path, repository)
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	for _, how := range [][]string{nil, {"--import"}} {
		status, out, stderr := command(t, append([]string{"check", repository, "--json", python}, how...)...)
		var got struct {
			Findings []struct{ Severity, Rule, Model, Text, Remedy string }
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 {
			t.Fatalf("%s: got status %d, %v, %s", how, status, err, stderr)
		}
		var rules []string
		for _, f := range got.Findings {
			rules = append(rules, f.Model+": "+f.Rule)
			line := "model '" + f.Model + "': " + f.Text + ": " + f.Remedy
			if n := strings.Count(s.log.String(), line); n != 1 {
				t.Errorf("the server has said %d times, want once: %s", n, line)
			}
		}
		if want := []string{"counted: instance-count", "joined: no-batches", "labels: labels", "twice: duplicate-name", "warm: warm-up"}; !slices.Equal(slices.Compact(rules), want) {
			t.Errorf("%s: got %q, want %q", how, rules, want)
		}
	}
}

// TestCheckWritesAConfig checks that --write-config writes a config from the names in model.py or
// from a request. The model must work with either, and an existing config must stay unchanged.
func TestCheckWritesAConfig(t *testing.T) {
	repository := writeFiles(t, map[string]string{"bare/1/model.py": checking("B"), "q.json": `{"inputs": [{"name": "A", "shape": [1, 3], "datatype": "INT16", "data": [1, 2, 3]}]}`})
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	for _, c := range []struct{ request, want string }{
		{"", "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: \"B\" data_type: TYPE_FP32 dims: [ -1 ] }\n"},
		{repository + "/q.json", "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_INT16 dims: [ 1, -1 ] }\noutput { name: \"B\" data_type: TYPE_INT16 dims: [ 1, -1 ] }\n"},
	} {
		path := repository + "/bare/config.pbtxt"
		if status, out, stderr := command(t, "check", repository+"/bare", "--write-config", "--request", c.request, python); status != 0 {
			t.Fatalf("got status %d, %s%s", status, out, stderr)
		}
		if text, err := os.ReadFile(path); string(text) != c.want {
			t.Errorf("got %q, %v, want %q", text, err, c.want)
		}
		if status, out, stderr := command(t, "check", repository+"/bare", "--try", python); status != 0 || !strings.Contains(out, "0 errors, 0 warnings") {
			t.Errorf("with that: got status %d, %s%s", status, out, stderr)
		}
		if status, _, stderr := command(t, "check", repository+"/bare", "--write-config", python); status != 1 || !strings.Contains(stderr, "config.pbtxt exists: --write-config never changes a file") {
			t.Errorf("again: got status %d, %s", status, stderr)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckTakesFlagsOfTheServer checks that `nereid check` respects server flags and rejects
// unknown flags.
func TestCheckTakesFlagsOfTheServer(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/1/model.py": checking("B"), "m/configs/other.pbtxt": checkedConfig})
	for want, arguments := range map[string][]string{
		"1 model: 0 errors, 1 warning, ":  nil,
		"1 model: 0 errors, 0 warnings, ": {"--model-config-name", "other"},
		"1 model: 1 error, 0 warnings, ":  {"--disable-auto-complete-config"},
	} {
		if _, out, stderr := command(t, append([]string{"check", repository}, arguments...)...); !strings.Contains(out, want) {
			t.Errorf("%q: got %s%s, want %q", arguments, out, stderr, want)
		}
	}
	for want, arguments := range map[string][]string{
		"unrecognized option '--imprt': did you mean --import?": {"--imprt"},
		"Bad option: \"--model-control-mode\"":                  {"--model-control-mode=x"},
	} {
		if status, _, stderr := command(t, append([]string{"check", repository}, arguments...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: got status %d, %s, want 2 and %q", arguments, status, stderr, want)
		}
	}
}
