package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"golang.org/x/sys/unix"
)

// completing returns a model whose auto_complete_config has the given one-line body.
func completing(body string) string {
	return `
import ctypes, os, signal, time
import numpy as np
import triton_python_backend_utils as pb_utils

steps = ["import"]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        steps.append("complete")
        ` + body + `
        return config

    def initialize(self, args):
        steps.append(args["model_instance_name"])

    def execute(self, requests):
        text = " ".join([*steps, str(os.getpid())])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.array([text], object))]) for _ in requests]
`
}

// complete opens the model in dir and auto-completes its config. The model is closed at the end of
// the test.
func (r *fixture) complete(dir string, config *kserve.ModelConfig) (backend.Model, []byte, error) {
	r.t.Helper()
	m, err := r.backend.Open(envOf(dir, config))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			r.t.Errorf("Close: got error %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := m.AutoComplete(ctx, []byte(`{"name":"m","max_batch_size":0,"input":[],"output":[]}`))
	return m, answer, err
}

func textConfig(instances int) *kserve.ModelConfig { return modelConfig("m", instances, infer.Bytes) }

// living returns the number of stub processes that the backend watches, without templates.
func (r *fixture) living() int {
	n := r.supervisor.Children().Count()
	if r.template() != 0 {
		n--
	}
	return n
}

// TestFirstInstanceLivesInTheStubThatCompleted checks that the first instance uses the stub that
// completed the config. The second instance has its own stub.
func TestFirstInstanceLivesInTheStubThatCompleted(t *testing.T) {
	for _, interpreter := range testkit.Pythons(t) {
		t.Run(interpreter.String(), func(t *testing.T) {
			r := newFixtureWith(t, interpreter.Path, nil)
			config := textConfig(2)
			m, answer, err := r.complete(r.writeModel("m", completing(`config.set_max_batch_size(3); steps.append(str(os.getpid()))`)), config)
			if err != nil {
				t.Fatalf("AutoComplete: got error %v", err)
			}
			var got map[string]any
			if err := json.Unmarshal(answer, &got); err != nil || got["max_batch_size"] != 3.0 {
				t.Errorf("AutoComplete: got %s, error %v, want max_batch_size 3", answer, err)
			}
			run := &running{fixture: r, model: m, events: &fakeEvents{}}
			if err := m.Start(t.Context(), config, answer, run.events); err != nil {
				t.Fatalf("Start: got error %v", err)
			}
			for i, in := range m.Instances() {
				want := []string{fmt.Sprintf("import complete %d m_0_0", r.pid(in)), "import m_0_1 "}[i]
				response := (&running{fixture: r, model: modelOfOne{m, in}}).mustInfer(&infer.Request{})
				if got := string(response.Outputs[0].Data[4:]); !strings.HasPrefix(got, want) {
					t.Errorf("instance %d: got steps %q, want %q", i, got, want)
				}
				response.Release()
			}
			if n := r.counts.of(&r.counts.started); n != 2 {
				t.Errorf("%d stubs were started, want 2", n)
			}
			// A later life of the first instance starts like the others.
			run.kill()
			testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.started) == 3 })
			response := run.mustInfer(&infer.Request{})
			if got := string(response.Outputs[0].Data[4:]); !strings.HasPrefix(got, "import m_0_0 ") {
				t.Errorf("after a loss: got steps %q", got)
			}
			response.Release()
		})
	}
}

// modelOfOne is a model reduced to one of its instances.
type modelOfOne struct {
	backend.Model
	in backend.Instance
}

func (o modelOfOne) Instances() []backend.Instance { return []backend.Instance{o.in} }

func TestAutoCompleteFails(t *testing.T) {
	patient, hurried := newFixture(t, nil), newFixture(t, func(c *python.Config) { c.InitializeTimeout = time.Second })
	const unwell = `^Stub process '' is not healthy\.$`
	for _, c := range []struct{ name, body, want, logged string }{
		{"raises", `raise ValueError("no")`, `(?s)^ValueError: no\n\nAt:\n  .*/1/model\.py\(\d+\): auto_complete_config\n$`, "Failed to initialize Python stub for auto-complete: ValueError: no"},
		{"returns nothing", `return None`, `^auto_complete_config function in model 'm' must return a valid pb\.ModelConfig object\.$`, ""},
		{"exits", `os._exit(0)`, unwell, "process exited with code 0"},
		// The many lines keep the reader of the output busy beyond the process's end.
		{"exits with a message", `os.write(2, b"\n" * 60000 + b"last words\n"); os._exit(3)`, unwell, "last words"},
		{"killed", `os.kill(os.getpid(), signal.SIGKILL)`, unwell, "SIGKILL"},
		{"segfault", `ctypes.string_at(0)`, unwell, "SIGSEGV"},
		{"stops", `os.kill(os.getpid(), signal.SIGSTOP)`, unwell, "process did not complete its config within 1s"},
		{"hangs", `time.sleep(1000)`, unwell, "process did not complete its config within 1s"},
		{"hangs in C", `ctypes.PyDLL(None).usleep(1000000000)`, unwell, "process did not complete its config within 1s"},
		{"closes everything", `os.closerange(3, 65536); time.sleep(1000)`, unwell, "process closed its end of the channel but is still running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := patient.in(t)
			if strings.Contains(c.logged, "within 1s") {
				r = hurried.in(t)
			}
			_, answer, err := r.complete(r.writeModel("m", completing(c.body)), textConfig(1))
			if err == nil {
				t.Fatalf("AutoComplete: got %s, want an error", answer)
			}
			own := infer.AsError(err)
			if !regexp.MustCompile(c.want).MatchString(own.Message) || own.Code != infer.Internal {
				t.Errorf("AutoComplete: got error %v %q, want %q", own.Code, own.Message, c.want)
			}
			if c.want == unwell && !strings.HasPrefix(infer.Detail(err), own.Message+" Cause: process ") {
				t.Errorf("AutoComplete: got detail %q, want the cause", infer.Detail(err))
			}
			if !testkit.Within(patience, func() bool { return strings.Contains(r.log.String(), c.logged) }) {
				t.Errorf("log has no %q", c.logged)
			}
			if r.living() != 0 {
				t.Errorf("%d stubs are left, want none", r.living())
			}
		})
	}
}

// TestAutoCompleteWithoutStart checks that the stub ends with Close, or with a Start that refuses
// the model.
func TestAutoCompleteWithoutStart(t *testing.T) {
	r := newFixture(t, nil)
	dir := r.writeModel("m", completing("pass"))
	for name, end := range map[string]func(t *testing.T, m backend.Model){
		"close": func(t *testing.T, m backend.Model) {
			if err := m.Close(t.Context()); err != nil {
				t.Errorf("Close: got error %v", err)
			}
		},
		"start": func(t *testing.T, m backend.Model) {
			empty := textConfig(1)
			empty.InstanceGroup = nil
			if err := m.Start(t.Context(), empty, nil, &fakeEvents{}); err == nil {
				t.Error("Start without instances: got no error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			m, _, err := r.complete(dir, textConfig(1))
			if err != nil {
				t.Fatal(err)
			}
			if n := r.living(); n != 1 {
				t.Errorf("%d stubs live after AutoComplete, want 1", n)
			}
			end(t, m)
			if n := r.living(); n != 0 {
				t.Errorf("%d stubs live, want none", n)
			}
		})
	}
}

// TestAutoCompleteThenDies kills the stub between AutoComplete and Start. Start fails with the
// instance's name.
func TestAutoCompleteThenDies(t *testing.T) {
	r := newFixture(t, nil)
	config, told := textConfig(1), filepath.Join(t.TempDir(), "pid")
	m, answer, err := r.complete(r.writeModel("m", completing(fmt.Sprintf("open(%q, 'w').write(str(os.getpid()))", told))), config)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if text, err := os.ReadFile(told); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = m.Start(t.Context(), config, answer, &fakeEvents{})
	if want := "Stub process 'm_0_0' is not healthy."; err == nil || infer.AsError(err).Message != want {
		t.Errorf("Start: got error %v, want %q", err, want)
	}
	if n := r.living(); n != 0 {
		t.Errorf("%d stubs live, want none", n)
	}
}

// TestAutoCompleteIsStopped cancels a load while the model completes its config.
func TestAutoCompleteIsStopped(t *testing.T) {
	r := newFixture(t, nil)
	mark := t.TempDir() + "/asked"
	dir := r.writeModel("m", completing(fmt.Sprintf(`open(%q, "w").close(); time.sleep(1000)`, mark)))
	opened, err := r.backend.Open(envOf(dir, textConfig(1)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := opened.AutoComplete(ctx, []byte("{}"))
		failed <- err
	}()
	testkit.Eventually(t, patience, func() bool { return exists(mark) })
	cancel()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("AutoComplete: got no error")
		}
	case <-time.After(patience):
		t.Fatal("AutoComplete does not return")
	}
	if n := r.living(); n != 0 {
		t.Errorf("%d stubs live, want none", n)
	}
}

// TestMissingModelFileIsNamed checks Triton's error text, in which auto-complete's stub has no
// name, followed by the missing file. Clients get the file's path in the repository, operators the
// full path.
func TestMissingModelFileIsNamed(t *testing.T) {
	r := newFixture(t, nil)
	dir := t.TempDir()
	_, _, err := r.complete(dir, textConfig(1))
	missing := " Python model file not found in '" + dir + "/1/model.py'"
	if want := "Stub process '' is not healthy." + missing; err == nil || infer.Detail(err) != want {
		t.Errorf("AutoComplete: got error %v, want %q", err, want)
	}
	_, err = r.open(dir, textConfig(1))
	if want := "Stub process 'm_0_0' is not healthy." + missing; err == nil || infer.Detail(err) != want {
		t.Errorf("Start: got error %v, want %q", err, want)
	}
	if want := "Stub process 'm_0_0' is not healthy. Python model file not found in 'm/1/model.py'"; err == nil || infer.AsError(err).Message != want {
		t.Errorf("Start: a client gets %v, want %q", err, want)
	}
	if want := "Failed to preinitialize Python stub: Python model file not found in '" + dir + "/1/model.py'"; strings.Count(r.log.String(), want) != 2 {
		t.Errorf("log has not %q twice", want)
	}
}

// TestOpenReportsUnmetNeedsOfAModel checks what Open logs or refuses before any code of the model
// runs.
func TestOpenReportsUnmetNeedsOfAModel(t *testing.T) {
	r := newFixture(t, nil)
	dir := r.writeModel("m", "")
	backends := t.TempDir()
	packed := filepath.Join(backends, "pb_exec_env_model.py.tar.gz")
	config := func(file string) *kserve.ModelConfig {
		c := textConfig(1)
		c.Backend, c.DefaultModelFilename = "based", file
		return c
	}
	env := func(file string) backend.Env { return envOf(dir, config(file)) }
	based := env("weights.bin")
	based.Runtime = filepath.Join(backends, "model.py")
	parameter := config("")
	parameter.Parameters = map[string]*kserve.ModelParameter{"EXECUTION_ENV_PATH": {StringValue: "env.tar.gz"}}
	place := func(value string) backend.Env {
		c := config("")
		c.Parameters = map[string]*kserve.ModelParameter{"FORCE_CPU_ONLY_INPUT_TENSORS": {StringValue: value}}
		return envOf(dir, c)
	}
	settings := based
	settings.Settings = map[string]string{"shm-growth-byte-size": "0"}
	for _, c := range []struct {
		name string
		env  backend.Env
		code infer.Code
		want string
	}{
		{"plain", env(""), 0, ""},
		{"other file", env("other.py"), 0, ""},
		{"no Python", env("model.txt"), infer.Internal, `^Model name must end with '\.py'\. Model name is "model\.txt"\.$`},
		{"elsewhere", env("../model.py"), infer.InvalidArg, `want the name of a file in the version directory$`},
		{"environment", envOf(dir, parameter), infer.Internal, `^Failed to get the canonical path for /.*/env\.tar\.gz\. `},
		{"inputs on CPUs", place("yes"), 0, ""},
		{"inputs anywhere", place("no"), 0, ""},
		{"inputs somewhere", place("Yes"), infer.Unsupported, `^Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: Yes'$`},
		{"based on Python", based, 0, ""},
		{"wrong settings", settings, infer.InvalidArg, `^shm-growth-byte-size can't be smaller than or equal to zero\.$`},
		{"packed", based, 0, ""}, // Check looks into it
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "packed" {
				touch(t, packed)
			}
			_, err := r.backend.Open(c.env)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case c.want != "" && (err == nil || infer.AsError(err).Code != c.code || !regexp.MustCompile(c.want).MatchString(infer.AsError(err).Detailed().Message)):
				t.Errorf("got error %v, want %v %q", err, c.code, c.want)
			}
		})
	}
	if want := "Using Python execution env " + packed; strings.Count(r.log.String(), want) != 1 {
		t.Errorf("log has not one %q", want)
	}
	const own = "has its own triton_python_backend_stub"
	if strings.Contains(r.log.String(), own) {
		t.Errorf("log has %q without reason", own)
	}
	touch(t, filepath.Join(dir, "triton_python_backend_stub"))
	if _, err := r.backend.Open(env("")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(r.log.String(), own) {
		t.Errorf("log has no %q", own)
	}
	for _, want := range []string{"Forcing CPU only input tensors.", "Input tensors can be both in CPU and GPU. FORCE_CPU_ONLY_INPUT_TENSORS is off."} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("log has no %q", want)
		}
	}
}

// TestLongConfigTravelsInBlocks checks that a config that is too long for a frame travels in
// blocks, both ways.
func TestLongConfigTravelsInBlocks(t *testing.T) {
	r := newFixture(t, nil)
	config := textConfig(1)
	config.Parameters = make(map[string]*kserve.ModelParameter)
	for i := range 2000 {
		config.Parameters[fmt.Sprint("parameter", i)] = &kserve.ModelParameter{StringValue: strings.Repeat("x", 100)}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := r.writeModel("m", completing("pass"))
	if _, err := r.in(t).open(dir, config); err != nil {
		t.Errorf("Start without AutoComplete: got error %v", err)
	}
	opened, err := r.backend.Open(envOf(dir, config))
	if err != nil {
		t.Fatal(err)
	}
	m := &running{fixture: r, model: opened, events: &fakeEvents{}}
	defer m.close()
	answer, err := opened.AutoComplete(t.Context(), text)
	if err != nil || len(answer) < len(text) {
		t.Errorf("AutoComplete: got %d bytes, error %v, want at least %d", len(answer), err, len(text))
	}
	if err := opened.Start(t.Context(), config, text, m.events); err != nil {
		t.Errorf("Start: got error %v", err)
	}
	m.mustInfer(&infer.Request{}).Release()
	if broken := r.counts.brokenRules(); len(broken) > 0 {
		t.Errorf("rules of the protocol were broken: %v", broken)
	}
}

// TestAutoCompleteThenAnotherFails checks that if the second instance fails to start, the first
// one, in the stub that completed the config, is ended too.
func TestAutoCompleteThenAnotherFails(t *testing.T) {
	r := newFixture(t, nil)
	source := completing("pass") + "\n    def __init__(self):\n        if steps == ['import']:\n            raise ValueError('not me')\n"
	config := textConfig(2)
	m, answer, err := r.complete(r.writeModel("m", source), config)
	if err != nil {
		t.Fatal(err)
	}
	err = m.Start(t.Context(), config, answer, &fakeEvents{})
	if err == nil || !strings.HasPrefix(infer.AsError(err).Message, "ValueError: not me\n\nAt:\n") {
		t.Errorf("Start: got error %v, want the second instance's", err)
	}
	if n := r.living(); n != 0 {
		t.Errorf("%d stubs live, want none", n)
	}
}

// TestInstancesInTheLog checks that each instance is logged once.
func TestInstancesInTheLog(t *testing.T) {
	r := newFixture(t, nil)
	config := textConfig(2)
	config.InstanceGroup[0].Kind = kserve.ModelInstanceGroup_KIND_MODEL
	m, err := r.open(r.writeModel("m", "class TritonPythonModel:\n    def execute(self, requests):\n        return None\n"), config)
	if err != nil {
		t.Fatal(err)
	}
	m.close()
	for _, want := range []string{"TRITONBACKEND_ModelInstanceInitialize: m_0_0 (MODEL device 0)", "TRITONBACKEND_ModelInstanceInitialize: m_0_1 (MODEL device 0)"} {
		if strings.Count(r.log.String(), want) != 1 {
			t.Errorf("log has %q not once", want)
		}
	}
}
