package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestSchedulingSameAsTriton sends the same requests to both servers, each once the previous one is
// pending. Both servers must form the same batches.
func TestSchedulingSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	directory := t.TempDir()
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	const limited = "max_batch_size: 4\ninstance_group [ { count: 1 kind: KIND_CPU rate_limiter { resources [ { name: \"R\" count: 1 } ] } } ]\n"
	files := map[string]string{}
	for name, config := range map[string][2]string{
		"single": {"", "max_batch_size: 1\n" + limited[strings.Index(limited, "instance"):]},
		"holds":  {"", limited}, "fills": {"", limited},
		"late": {"preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 3000000 " +
			"default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 60000000 allow_timeout_override: true }", "max_batch_size: 8\n"},
	} {
		files[name+"/config.pbtxt"] = batchConfig(directory, config[0], config[1])
		files[name+"/1/model.py"] = batchModel
	}
	repository := writeFiles(t, files)
	flags := []string{"--rate-limit=execution_count", "--rate-limit-resource=R:1"}
	var told [2]string
	for i, s := range []*runningServer{startTriton(t, dir, repository, flags...), start(t, "/usr/bin/python3", repository, flags...)} {
		s.waitReady()
		removeIn(t, directory)
		told[i] = s.schedules(directory)
	}
	if told[0] != told[1] {
		t.Errorf("Triton:\n%sNereid:\n%s", told[0], told[1])
	}
}

// removeIn removes the files of a directory.
func removeIn(t *testing.T, directory string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(directory, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// schedules runs the loads and returns a description of the batches.
func (s *runningServer) schedules(directory string) string {
	var told strings.Builder
	for _, load := range []struct{ holder, model string }{{"single", "single"}, {"fills", "fills"}, {"holds", "fills"}} {
		var clients sync.WaitGroup
		var mu sync.Mutex
		batches := map[string]string{}
		ask := func(model, id string) {
			clients.Go(func() {
				body := fmt.Sprintf(`{"id":"%s","inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[0]}]}`, id)
				status, answer := s.request("POST", "/v2/models/"+model+"/infer", body)
				mu.Lock()
				defer mu.Unlock()
				batches[id] = fmt.Sprint(status)
				if status == http.StatusOK {
					_, rest, _ := strings.Cut(answer, `"data":["`)
					batches[id], _, _ = strings.Cut(rest, `"`)
				}
			})
		}
		hold := "hold" + load.model
		ask(load.holder, hold)
		s.until("the first is executed", func() bool {
			_, err := os.Stat(filepath.Join(directory, load.holder+"."+hold+".begun"))
			return err == nil
		})
		for n := range 7 {
			ask(load.model, fmt.Sprint(n))
			s.until(fmt.Sprintf("%d wait for %s", n+1, load.model), func() bool { return pendingOf(s.scrape(), load.model) == n+1 })
		}
		if err := os.WriteFile(filepath.Join(directory, load.holder+"."+hold), nil, 0o644); err != nil {
			s.t.Fatal(err)
		}
		clients.Wait()
		for n := range 7 {
			fmt.Fprintf(&told, "%s behind %s, %d: %s\n", load.model, load.holder, n, batches[fmt.Sprint(n)])
		}
	}

	// A late request yields to two requests that form a preferred batch size.
	var clients sync.WaitGroup
	answers := make([]string, 3)
	for i, rows := range []string{"2", "1", "2"} {
		clients.Go(func() {
			data := strings.TrimSuffix(strings.Repeat("0,", int(rows[0]-'0')), ",")
			timeout := ""
			if rows == "1" {
				timeout = `"parameters":{"timeout":400000},`
			}
			body := fmt.Sprintf(`{"id":"%d",%s"inputs":[{"name":"X","datatype":"FP32","shape":[%s,1],"data":[%s]}]}`, i, timeout, rows, data)
			_, answer := s.request("POST", "/v2/models/late/infer", body)
			_, rest, _ := strings.Cut(answer, `"data":["`)
			answers[i], _, _ = strings.Cut(rest, `"`)
		})
		s.until("it waits", func() bool { return pendingOf(s.scrape(), "late") == i+1 })
	}
	clients.Wait()
	fmt.Fprintf(&told, "late: %s\n", strings.Join(answers, ", "))
	return told.String()
}

// TestFailingStepsSameAsTriton makes two concurrent steps of an ensemble fail. In any order of the
// steps, the ensemble's error must be that of the step that fails first.
func TestFailingStepsSameAsTriton(t *testing.T) {
	const model = `
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        name = requests[0].inputs()[0].as_numpy()[0].decode()
        %s
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("%s fails")) for r in requests]
`
	const ensemble = `
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "%s" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "A" } },
  { model_name: "%s" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "B" } }
] }
`
	const step = "backend: \"python\"\ninput [ { name: \"IN\" data_type: TYPE_STRING dims: [ 1 ] } ]\noutput [ { name: \"OUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]\n"
	marks := t.TempDir()
	if err := os.Chmod(marks, 0o777); err != nil {
		t.Fatal(err)
	}
	repository := writeFiles(t, map[string]string{
		"early/config.pbtxt": step, "early/1/model.py": fmt.Sprintf(model, fmt.Sprintf("open(os.path.join(%q, name), \"w\").close()", marks), "early"),
		// When the mark exists, the other step's error is already on its way.
		"late/config.pbtxt": step, "late/1/model.py": fmt.Sprintf(model, fmt.Sprintf(
			"while not os.path.exists(os.path.join(%q, name)):\n            time.sleep(0.01)\n        time.sleep(0.5)", marks), "late"),
		"early_late/config.pbtxt": fmt.Sprintf(ensemble, "early", "late"), "early_late/1/.keep": "",
		"late_early/config.pbtxt": fmt.Sprintf(ensemble, "late", "early"), "late_early/1/.keep": "",
	})
	for server, s := range map[string]*runningServer{"Triton": startTriton(t, yardstick(t), repository), "Nereid": start(t, "/usr/bin/python3", repository)} {
		s.waitReady()
		for _, name := range []string{"early_late", "late_early"} {
			_, body := s.request("POST", "/v2/models/"+name+"/infer", `{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["`+server+name+`"]}]}`)
			if got, want := errorOf(t, body), "in ensemble '"+name+"', early fails"; got != want {
				t.Errorf("%s: got %q, want %q", server, got, want)
			}
		}
	}
}
