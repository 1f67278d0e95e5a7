package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// lifeModel is stormModel, but generation -1 waits in initialize for the file "go".
var lifeModel = strings.Replace(stormModel, "    def execute", `        if self.generation[0] == -1:
            print("waits to go", flush=True)
        while self.generation[0] == -1 and not os.path.exists(os.path.join(args["model_repository"], "go")):
            time.sleep(0.01)

    def execute`, 1)

// ensembleOf returns the config of an ensemble that passes its input through models of stormConfig,
// one after another. "a:2" is version 2 of a.
func ensembleOf(steps ...string) string {
	var text strings.Builder
	text.WriteString(strings.Replace(stormConfig, `backend: "python"`, `platform: "ensemble"`, 1) + "ensemble_scheduling {\n")
	for i, step := range steps {
		from, to := fmt.Sprint("T", i), fmt.Sprint("T", i+1)
		if i == 0 {
			from = "IN"
		}
		if i == len(steps)-1 {
			to = "OUT"
		}
		model, version, pinned := strings.Cut(step, ":")
		if !pinned {
			version = "-1"
		}
		fmt.Fprintf(&text, "  step { model_name: %q model_version: %s input_map { key: \"IN\" value: %q } output_map { key: \"OUT\" value: %q } }\n",
			model, version, from, to)
	}
	return text.String() + "}\n"
}

// lifeFiles returns the files of models, and of ensembles given by their steps.
func lifeFiles(models []string, ensembles map[string]string) map[string]string {
	files := map[string]string{}
	for _, name := range models {
		files[name+"/config.pbtxt"], files[name+"/1/generation"] = stormConfig, "0"
		files[name+"/1/model.py"] = "import time\n" + lifeModel
	}
	for name, steps := range ensembles {
		files[name+"/config.pbtxt"], files[name+"/1/placeholder"] = ensembleOf(strings.Fields(steps)...), ""
	}
	return files
}

// TestClientsLoadAndUnloadModels checks that both clients can load and unload models and an
// ensemble.
func TestClientsLoadAndUnloadModels(t *testing.T) {
	root := writeFiles(t, lifeFiles([]string{"first", "second", "third"}, map[string]string{"both": "first second"}))
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=first")
	s.runClient("models_life.py", root)
}

// TestPollFollowsChanges changes a repository that the server polls every second. The server must
// load, reload and unload models accordingly.
func TestPollFollowsChanges(t *testing.T) {
	testkit.Story(t)
	root := writeFiles(t, lifeFiles([]string{"m", "n"}, map[string]string{"both": "m late"}))
	s := launch(t, testkit.Python(t).Path, root, "--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false")
	s.until("up", func() bool {
		_, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil
	})
	until := func(what string, ok func(map[string]indexEntry) bool) {
		t.Helper()
		s.until(what, func() bool { return ok(s.index()) })
	}
	put := func(path, text string) {
		t.Helper()
		testkit.WriteFiles(t, root, map[string]string{path: text})
	}
	generation := func(name string) string {
		_, body := s.request("POST", "/v2/models/"+name+"/infer", `{"inputs":[{"name":"IN","datatype":"INT64","shape":[1],"data":[0]}]}`)
		_, after, _ := strings.Cut(body, `"data":[`)
		value, _, _ := strings.Cut(after, "]")
		return value
	}
	until("loaded", func(i map[string]indexEntry) bool { return i["m"].State == "READY" && i["n"].State == "READY" })
	if entry := s.index()["both"]; entry.State != "" {
		t.Errorf("the ensemble whose model is missing is %+v", entry)
	}
	if status, body := s.request("POST", "/v2/repository/models/m/load", ""); status != http.StatusServiceUnavailable ||
		errorOf(t, body) != "explicit model load / unload is not allowed if polling is enabled" {
		t.Errorf("load: %d %s", status, body)
	}
	for path, text := range lifeFiles([]string{"late"}, nil) {
		put(path, text)
	}
	until("complete", func(i map[string]indexEntry) bool { return i["both"].State == "READY" })

	put("m/1/generation", "1")
	s.until("loaded anew", func() bool { return generation("m") == "1" })
	put("m/config.pbtxt", "input [ {") // a half-written file
	put("n/1/generation", "1")
	s.until("loaded anew beside half a model", func() bool { return generation("n") == "1" })
	if got := generation("m"); got != "1" {
		t.Errorf("a model whose config is being written answers %q", got)
	}
	put("m/config.pbtxt", stormConfig)
	if err := os.RemoveAll(filepath.Join(root, "late")); err != nil {
		t.Fatal(err)
	}
	until("without the one that is gone", func(i map[string]indexEntry) bool {
		_, there := i["late"]
		return !there && i["both"].Reason == "unloaded"
	})
	// Python has compiled modules, and an editor has opened a file. Neither may cause a reload.
	put("m/1/.model.py.swp", "")
	put("m/1/__pycache__/model.cpython-311.pyc", "")
	put("n/1/generation", "2")
	s.until("loaded anew after the editor was opened", func() bool { return generation("n") == "2" })
	// A load that never ends must be abandoned when the model changes again.
	stuck := lifeFiles([]string{"stuck"}, nil)
	stuck["stuck/1/generation"] = "-1"
	for _, path := range []string{"1/generation", "1/model.py", "config.pbtxt"} {
		put("stuck/"+path, stuck["stuck/"+path])
	}
	until("loading", func(i map[string]indexEntry) bool {
		return i["stuck"].State == "LOADING" && strings.Contains(s.log.String(), "waits to go")
	})
	put("stuck/1/generation", "3")
	s.until("loaded from what is newer", func() bool { return generation("stuck") == "3" })
	if want := "current load operation is out-dated."; !s.prints(want) {
		t.Errorf("the log does not say %q", want)
	}
	if n := s.printed("loading: m:1", 2); n != 2 {
		t.Errorf("m was loaded %d times, want 2", n)
	}
}

// lifeStep is a load or unload of a model.
type lifeStep struct{ call, model, body string }

// TestLifeSameAsTriton sends the same loads and unloads to Triton and to this server. Replies,
// index and metadata must be the same after each.
func TestLifeSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	files := lifeFiles([]string{"a", "b", "c", "bad", "slow"}, map[string]string{
		"e": "a b", "top": "e c", "missing": "a later", "self": "self", "one": "two", "two": "one", "broken": "bad", "above": "broken",
		"pinned": "a:3", "empty": "none", "half": "a unread", "implicit": "b c",
	})
	files["bad/1/model.py"] = "raise ValueError('no')\n"
	files["none/config.pbtxt"], files["unread/config.pbtxt"] = stormConfig, "nonsense {"
	delete(files, "none/1/model.py")
	var servers [2]*runningServer
	var roots [2]string
	flags := []string{"--model-control-mode=explicit", "--strict-readiness=false"}
	for i := range servers {
		roots[i] = writeFiles(t, files)
	}
	servers[0] = startTriton(t, dir, roots[0], flags...)
	servers[1] = launch(t, "/usr/bin/python3", roots[1], flags...)
	for _, s := range servers {
		s.waitReady()
	}
	same := func(what string, ask func(i int) string) {
		t.Helper()
		want, got := ask(0), ask(1)
		want, got = helperFrames.ReplaceAllString(strings.ReplaceAll(want, roots[0], "ROOT"), ""), strings.ReplaceAll(got, roots[1], "ROOT")
		if want != got {
			t.Errorf("%s:\n   Triton: %s\n   Nereid: %s", what, want, got)
		}
	}
	const dependents = `{"parameters":{"unload_dependents":true}}`
	for _, step := range []lifeStep{
		{"load", "none", ""}, {"load", "missing", ""}, {"load", "self", ""}, {"load", "one", ""}, {"load", "broken", ""}, {"load", "above", ""},
		{"load", "pinned", ""}, {"load", "empty", ""}, {"load", "half", ""}, {"load", "nowhere", ""}, {"unload", "nowhere", ""},
		{"load", "top", ""}, {"unload", "a", ""}, {"load", "a", ""}, {"unload", "e", ""}, {"load", "e", ""},
		{"load", "implicit", ""}, {"unload", "implicit", dependents}, {"unload", "top", dependents}, {"unload", "a", ""},
		{"unload", "e", ""}, {"load", "a", ""}, {"unload", "bad", ""}, {"load", "c", `{"parameters":{"config":"{"}}`},
		{"load", "c", `{"parameters":{"file:1/model.py":"AAAA"}}`}, {"load", "c", `{"parameters":{"config":7}}`},
	} {
		what := step.call + " " + step.model + " " + step.body
		same(what, func(i int) string {
			status, body := servers[i].request("POST", "/v2/repository/models/"+step.model+"/"+step.call, step.body)
			return fmt.Sprint(status, " ", body)
		})
		// Unloading continues after the reply.
		index := func(i int) string {
			_, body := servers[i].request("POST", "/v2/repository/index", "")
			return body
		}
		for i, s := range servers {
			s.until("done with "+what, func() bool { return !strings.Contains(index(i), `"UNLOADING"`) })
		}
		same("the index after "+what, index)
		for _, model := range []string{"a", "e", "nowhere", "none", "missing"} {
			same("the metadata of "+model+" after "+what, func(i int) string {
				status, body := servers[i].request("GET", "/v2/models/"+model, "")
				return fmt.Sprint(status, " ", body)
			})
		}
	}
}
