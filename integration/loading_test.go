package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// loadingModel records in a directory when its initialize begins and ends. The first attempts fail,
// as many as its config says. After those it waits for a file if its config says so.
const loadingModel = `
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = {k: v["string_value"] for k, v in json.loads(args["model_config"])["parameters"].items()}
        path = os.path.join(parameters["directory"], args["model_name"] + "." + args["model_version"])
        with open(path + ".attempts", "a") as f:
            f.write("x")
        attempt = os.path.getsize(path + ".attempts")
        if attempt <= int(parameters.get("fails", 0)):
            if parameters.get("how") == "dies":
                os._exit(1)
            raise RuntimeError("attempt " + str(attempt))
        self.note(path + ".begun")
        while "waits" in parameters and not os.path.exists(path + ".go"):
            time.sleep(0.001)
        self.note(path + ".ended")

    def note(self, path):
        with open(path + "~", "w") as f:
            f.write(str(time.monotonic_ns()))
        os.rename(path + "~", path)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

// loadingConfig returns the config of a loadingModel. parameters alternates names and values.
func loadingConfig(directory string, parameters ...string) string {
	text := oneFloat
	parameters = append(parameters, "directory", directory)
	for i := 0; i < len(parameters); i += 2 {
		text += fmt.Sprintf("\nparameters { key: %q value { string_value: %q } }", parameters[i], parameters[i+1])
	}
	return text
}

// TestLoadRetriesAsOftenAsConfigured loads models whose first attempts fail. A model that succeeds
// within --model-load-retry-count must load, and others must fail.
func TestLoadRetriesAsOftenAsConfigured(t *testing.T) {
	testkit.Story(t)
	directory := t.TempDir()
	files := map[string]string{}
	for name, parameters := range map[string][]string{
		"second": {"fails", "1"}, "third": {"fails", "2"}, "fourth": {"fails", "3"}, "third_dies": {"fails", "2", "how", "dies"},
		"fourth_dies": {"fails", "3", "how", "dies"},
	} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = loadingConfig(directory, parameters...), loadingModel
	}
	repository := writeFiles(t, files)
	t.Run("asked for", func(t *testing.T) {
		s := start(t, testkit.Python(t).Path, repository, "--model-control-mode=explicit", "--model-load-retry-count=2")
		s.runClient("load_retries.py", directory)
	})
	for _, retries := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("at start with %d", retries), func(t *testing.T) {
			attempts, _ := filepath.Glob(filepath.Join(directory, "*.attempts"))
			for _, path := range attempts {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			s := launch(t, testkit.Python(t).Path, repository, "--exit-on-error=false", "--strict-readiness=false",
				"--model-load-retry-count="+strconv.Itoa(retries))
			s.waitReady()
			index := s.index()
			for name, fails := range map[string]int{"second": 1, "third": 2, "fourth": 3, "third_dies": 2, "fourth_dies": 3} {
				want := indexEntry{Name: name, Version: "1", State: "READY"}
				if fails > retries {
					want.State, want.Reason = "UNAVAILABLE", fmt.Sprintf("Internal: RuntimeError: attempt %d\n", retries+1)
					if strings.HasSuffix(name, "dies") {
						want.Reason = fmt.Sprintf("Internal: Stub process '%s_0' is not healthy.", name)
					}
				}
				got := index[name]
				if before, _, traced := strings.Cut(got.Reason, "\nAt:\n"); traced {
					got.Reason = before
				}
				if got != want {
					t.Errorf("got the entry %+v, want %+v", got, want)
				}
				text, err := os.ReadFile(filepath.Join(directory, name+".1.attempts"))
				if tried := min(fails, retries) + 1; err != nil || len(text) != tried {
					t.Errorf("%s was tried %d times, %v, want %d", name, len(text), err, tried)
				}
			}
		})
	}
}

// TestLoadThreadsBoundLoads checks that --model-load-thread-count limits the concurrent loads,
// during startup and for loads by clients. The models wait until the test releases them.
func TestLoadThreadsBoundLoads(t *testing.T) {
	testkit.Story(t)
	versions := []string{"a.1", "b.1", "c.1", "d.1", "d.2", "e.1"}
	for _, test := range []struct {
		name  string
		flags []string
		limit int
	}{
		{"at start, 4", nil, 4},
		{"at start, 1", []string{"--model-load-thread-count=1"}, 1},
		{"at start, 2", []string{"--model-load-thread-count=2"}, 2},
		{"asked for, 3", []string{"--model-load-thread-count=3", "--model-control-mode=explicit"}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			directory := t.TempDir()
			files := map[string]string{}
			for _, v := range versions {
				name, number, _ := strings.Cut(v, ".")
				files[name+"/config.pbtxt"] = loadingConfig(directory, "waits", "yes") + "\nversion_policy { all { } }"
				files[name+"/"+number+"/model.py"] = loadingModel
			}
			s := launch(t, testkit.Python(t).Path, writeFiles(t, files), test.flags...)
			var asking sync.WaitGroup
			if len(test.flags) > 1 {
				s.waitReady()
				asking.Go(func() { s.runClient("loads.py", "a", "b", "c", "d", "e") })
			}
			list := func(what string) (names []string) {
				paths, _ := filepath.Glob(filepath.Join(directory, "*."+what))
				for _, path := range paths {
					names = append(names, strings.TrimSuffix(filepath.Base(path), "."+what))
				}
				return names
			}
			for gone := range versions {
				s.until("loading as much as it may", func() bool { return len(list("begun")) >= min(gone+test.limit, len(versions)) })
				next := slices.DeleteFunc(list("begun"), func(v string) bool { return slices.Contains(list("go"), v) })[0]
				if err := os.WriteFile(filepath.Join(directory, next+".go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			asking.Wait()
			s.waitReady()
			if got := mostAtOnce(t, directory, versions); got != test.limit {
				t.Errorf("%d versions were loaded at once, want %d", got, test.limit)
			}
		})
	}
}

// mostAtOnce returns the maximum number of versions that were initializing at the same time.
func mostAtOnce(t *testing.T, directory string, versions []string) (most int) {
	t.Helper()
	at := func(version, what string) int64 {
		text, err := os.ReadFile(filepath.Join(directory, version+"."+what))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	for _, one := range versions {
		together := 0
		for _, other := range versions {
			if begun := at(one, "begun"); at(other, "begun") <= begun && begun < at(other, "ended") {
				together++
			}
		}
		most = max(most, together)
	}
	return most
}

// TestLoadErrorsTellNothingOfFiles sends configs that name files of the server. The error must not
// reveal paths, contents of files, or whether a file exists. The log must have the details.
func TestLoadErrorsTellNothingOfFiles(t *testing.T) {
	secret := writeFiles(t, map[string]string{"secret": "s3cr3t!!", "environment/empty": ""})
	root := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")})
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit")
	load := func(more string) string {
		t.Helper()
		config, err := json.Marshal(`{"backend":"python","input":[{"name":"INPUT0","data_type":"TYPE_FP32","dims":[1]}],` +
			`"output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[1]` + more + `}`)
		if err != nil {
			t.Fatal(err)
		}
		status, body := s.request("POST", "/v2/repository/models/m/load", fmt.Sprintf(`{"parameters":{"config":%s}}`, config))
		if status == http.StatusOK {
			t.Errorf("%s: the model was loaded", more)
		}
		if reason := s.index()["m"].Reason; !strings.Contains(errorOf(t, body), reason) {
			t.Errorf("%s: the index has the reason %q, and the client got %s", more, reason, body)
		}
		for _, never := range []string{secret, root, "s3cr3t", "73 33 63"} {
			if strings.Contains(body, never) {
				t.Errorf("%s: the client got %s", more, body)
			}
		}
		return errorOf(t, body)
	}
	environment := func(path string) string {
		return load(`}],"parameters":{"EXECUTION_ENV_PATH":{"string_value":"` + path + `"}}`)
	}
	missing := environment(secret + "/missing")
	for path, logged := range map[string]string{
		secret + "/secret":      "the file begins with 73 33 63 72 33 74 21 21 and is not a tar archive",
		secret + "/environment": "Path " + secret + "/environment/bin/activate does not exist.",
		secret + "/secret/x":    "Failed to get the canonical path for " + secret + "/secret/x.",
		"/proc/self/environ":    "archive_read_open_filename() failed",
	} {
		if got := environment(path); got != missing || !s.prints(logged) {
			t.Errorf("%s: the client got %q, want what it gets of a path that is missing, %q; the log is to have %q", path, got, missing, logged)
		}
	}
	const unread = "failed to open text file for read "
	if got := load(`,"label_filename":"l.txt"}]`); !strings.Contains(got, unread+"m/l.txt: No such file or directory") || !s.prints(unread+root+"/m/l.txt: ") {
		t.Errorf("labels: the client got %q", got)
	}
	const sample = `}],"model_warmup":[{"name":"s","batch_size":1,"inputs":{"INPUT0":{"data_type":"TYPE_FP32","dims":[1],"input_data_file":"w"}}}]`
	if got := load(sample); !strings.Contains(got, unread+"m/warmup/w: No such file or directory") || !s.prints(unread+root+"/m/warmup/w: ") {
		t.Errorf("warm-up: the client got %q", got)
	}
}
