package process_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// failingModel handles each request as its id says.
const failingModel = `
import numpy as np
import triton_python_backend_utils as pb_utils

def deeper():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("wörk") from error

class TritonPythonModel:
    def execute(self, requests):
        if requests[0].request_id() == "raise":
            deeper()
        answers = []
        for request in requests:
            good = pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", request.inputs()[0].as_numpy())])
            answers.append(5 if request.request_id() == "wrong" else good)
        return answers
`

// logLine returns the log line whose message contains part.
func (r *fixture) logLine(part string) map[string]any {
	r.t.Helper()
	var found map[string]any
	if !testkit.Within(patience, func() bool {
		for line := range strings.Lines(r.log.String()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && strings.Contains(fields["message"].(string), part) {
				found = fields
				return true
			}
		}
		return false
	}) {
		r.t.Fatalf("no line with %q in\n%s", part, r.log)
	}
	return found
}

func wantFields(t *testing.T, line map[string]any, want map[string]any) {
	t.Helper()
	for key, value := range want {
		got, _ := json.Marshal(line[key])
		wanted, _ := json.Marshal(value)
		if string(got) != string(wanted) {
			t.Errorf("field %q of the log line: got %s, want %s", key, got, wanted)
		}
	}
}

// TestErrorsInTheLog checks that the log has the whole traceback in addition to the client's error,
// with the model, the instance and the request ids.
func TestErrorsInTheLog(t *testing.T) {
	eachPython(t, func(t *testing.T, r *fixture) {
		m, err := r.open(r.writeModel("failing", failingModel), modelConfig("failing", 1, infer.Uint8))
		if err != nil {
			t.Fatal(err)
		}
		batch := []*infer.Request{r.small(), r.small(), r.small()}
		batch[0].ID, batch[2].ID = "raise", "third"
		responses, report := m.infer(batch...)
		releaseInputs(batch...)
		const told = "Failed to process the request(s) for model 'failing_0_0', message: ValueError: wörk\n\nAt:\n  "
		for i, response := range responses {
			if response.Err == nil || !strings.HasPrefix(response.Err.Message, told) || strings.Contains(response.Err.Message, "Traceback") {
				t.Errorf("request %d: got error %v, want Triton's text", i, response.Err)
			}
		}
		if report.Err == nil {
			t.Error("the report has no error")
		}
		line := r.logLine(told)
		message := line["message"].(string)
		for _, part := range []string{
			"\nTraceback (most recent call last):\n", "KeyError: 'missing'\n",
			"The above exception was the direct cause of the following exception:", "in deeper\n", "in execute\n", "ValueError: wörk",
		} {
			if !strings.Contains(message, part) {
				t.Errorf("the log lacks %q:\n%s", part, message)
			}
		}
		if strings.Contains(message, "pb_stub") {
			t.Errorf("the log shows frames of the stub:\n%s", message)
		}
		wantFields(t, line, map[string]any{
			"level": "error", "model": "failing", "version": 1, "instance": "failing_0_0", "requests": []string{"raise", "third"},
		})

		// One wrong response: the other requests still get theirs.
		batch = []*infer.Request{r.small(), r.small(), r.small()}
		batch[0].ID, batch[1].ID = "first", "wrong"
		responses, report = m.infer(batch...)
		releaseInputs(batch...)
		const wrong = "Failed to process the request(s) for model 'failing_0_0', message: Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."
		for i, response := range responses {
			bad := response.Err != nil && response.Err.Message == wrong && response.Err.Code == infer.Internal
			good := response.Err == nil && len(response.Outputs) == 1 && string(response.Outputs[0].Data) == "\x01\x02\x03\x04"
			if bad != (i == 1) || good == bad {
				t.Errorf("request %d: got error %v, outputs %v", i, response.Err, response.Outputs)
			}
			response.Release()
		}
		if report.Err != nil || !report.Executed {
			t.Errorf("report: %+v", report)
		}
		wantFields(t, r.logLine(wrong), map[string]any{"level": "error", "instance": "failing_0_0", "requests": []string{"first", "wrong"}})

		// Without ids, the log line has no such field.
		request := r.small()
		request.ID = "wrong"
		responses, _ = m.infer(request)
		request.ID = ""
		releaseInputs(request)
		if responses[0].Err == nil || responses[0].Err.Message != wrong {
			t.Errorf("alone: got error %v", responses[0].Err)
		}
	})
}

// TestErrorsOfLateCoroutinesAreLogged checks that errors of coroutines that continue after their
// batch are logged like others.
func TestErrorsOfLateCoroutinesAreLogged(t *testing.T) {
	r := newFixture(t, nil)
	config := modelConfig("late", 1, infer.Uint8)
	config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	m, err := r.open(r.writeModel("late", `
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.sleep(0.01)
        {}["missing"]
`), config)
	if err != nil {
		t.Fatal(err)
	}
	batch := []*infer.Request{r.small(), r.small()}
	batch[0].ID, batch[1].ID = "b", "a"
	responses, _ := m.infer(batch...)
	releaseInputs(batch...)
	for i, response := range responses {
		if response.Err == nil || !strings.HasPrefix(response.Err.Message, "Failed to process the request(s) for model 'late_0_0', message: KeyError: 'missing'") {
			t.Errorf("request %d: got error %v", i, response.Err)
		}
	}
	line := r.logLine("Traceback (most recent call last):")
	if message := line["message"].(string); !strings.Contains(message, "in execute\n") || !strings.Contains(message, "KeyError: 'missing'") {
		t.Errorf("got %s", message)
	}
	wantFields(t, line, map[string]any{"level": "error", "model": "late", "instance": "late_0_0", "requests": []string{"a", "b"}})
}

// TestErrorsOfInitializeAreLogged checks that errors of initialize are logged with their traceback.
func TestErrorsOfInitializeAreLogged(t *testing.T) {
	r := newFixture(t, nil)
	_, err := r.open(r.writeModel("refuses", `
class TritonPythonModel:
    def initialize(self, args):
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError("no model") from error
`), modelConfig("refuses", 1, infer.Uint8))
	if err == nil || !strings.HasPrefix(err.Error(), "RuntimeError: no model\n\nAt:\n  ") || strings.Contains(err.Error(), "Traceback") {
		t.Errorf("Start: got error %v", err)
	}
	line := r.logLine("Failed to initialize Python stub: RuntimeError: no model")
	if message := line["message"].(string); !strings.Contains(message, "invalid literal for int()") || !strings.Contains(message, "direct cause") {
		t.Errorf("the log lacks the cause:\n%s", message)
	}
	wantFields(t, line, map[string]any{"level": "error", "model": "refuses", "instance": "refuses_0_0", "requests": nil})
}

// TestOutputOfModelsKeepsItsStream checks that output of any code in the process is copied
// unchanged to the same stream. With TaggedOutput, it goes to the log with the model's name.
func TestOutputOfModelsKeepsItsStream(t *testing.T) {
	const printing = `import json, logging, os, sys
print(json.dumps({"by": "print \u00e4\t"}))
print("by stderr", file=sys.stderr)
logging.error("by logging")
os.system("echo by a child; echo child by stderr >&2")
sys.stdout.write("no end")
pb.Logger.log_info("by Logger")`
	for _, tagged := range []bool{false, true} {
		r := newFixture(t, func(c *python.Config) { c.TaggedOutput = tagged })
		m := r.start("asks", infer.Uint8)
		m.rows([]callCase{{printing, "done"}})
		wantFields(t, r.logLine("by Logger"), map[string]any{"model": nil, "instance": nil, "file": "asked", "line": 7, "level": "info"})
		m.close()
		if tagged {
			for _, part := range []string{"by stderr", "ERROR:root:by logging", "by a child", "child by stderr", "no end"} {
				line := r.logLine(part)
				wantFields(t, line, map[string]any{"model": "asks", "version": 1, "instance": "asks_0_0", "message": part, "file": "output", "level": nil})
			}
			continue
		}
		for i, want := range []string{"{\"by\": \"print \\u00e4\\t\"}\nby a child\nno end\n", "by stderr\nERROR:root:by logging\nchild by stderr\n"} {
			if got := r.printed[i].String(); got != want {
				t.Errorf("stream %d got %q, want %q", i+1, got, want)
			}
		}
		if strings.Contains(r.log.String(), "by stderr") {
			t.Error("what was printed is in the log, too")
		}
	}
}
