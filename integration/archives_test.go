package integration

import (
	"archive/tar"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// marker returns the content of the file "marker" in a model's environment.
func (s *runningServer) marker(model string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.mustAsk(model).Environment["VIRTUAL_ENV"], "marker"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// unpackings waits until the log reports at least the given number of unpacked archives, and
// returns the actual number.
func (s *runningServer) unpackings(least int) int {
	return s.printed("Extracting Python execution env ", least)
}

// cacheFlag returns the flag that sets the directory of the cache of environments.
func cacheFlag(directory string) string {
	return "--backend-config=python,env-cache-directory=" + directory
}

// unpackedIn lists the unpacked environments in a cache.
func unpackedIn(t *testing.T, directory string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(directory, "*", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// load loads a model and returns the status and the body of the reply.
func (s *runningServer) load(model string) (int, string) {
	s.t.Helper()
	return s.request("POST", "/v2/repository/models/"+model+"/load", "")
}

func (s *runningServer) mustLoad(model string) {
	s.t.Helper()
	if status, body := s.load(model); status != http.StatusOK {
		s.t.Fatalf("load %s: status %d: %s", model, status, body)
	}
}

// touch changes the modification time of a file.
func touch(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	later := info.ModTime().Add(2 * time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

// lateModel is a model whose execute waits for a file and then reads the marker of its environment.
const lateModel = `
import os, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.go = os.path.join(args["model_repository"], "..", "go")

    def execute(self, requests):
        open(self.go + ".waits", "w").close()
        while not os.path.exists(self.go):
            time.sleep(0.01)
        with open(os.path.join(os.environ["VIRTUAL_ENV"], "marker")) as f:
            marker = f.read().encode()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([marker], object))]) for _ in requests]
`

const lateConfig = `
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// TestArchiveChangesUnderAServer touches, changes and removes the archive of three models. The
// server must unpack each version of the archive once. Running models and restarted processes must
// keep their environment.
func TestArchiveChangesUnderAServer(t *testing.T) {
	testkit.Story(t)
	const value = "$$TRITON_MODEL_DIRECTORY/../env.tar.gz"
	root := writeFiles(t, map[string]string{
		"models/first/config.pbtxt": inEnvironment(value), "models/first/1/model.py": tellingModel,
		"models/second/config.pbtxt": inEnvironment(value), "models/second/1/model.py": tellingModel,
		"models/late/config.pbtxt": inEnvironment(value) + lateConfig, "models/late/1/model.py": lateModel,
	})
	models, environments := root+"/models", filepath.Join(t.TempDir(), "environments")
	archive := models + "/env.tar.gz"
	pack(t, archive, smallEnvironment(t, "one"))
	s := start(t, testkit.Python(t).Path, models, cacheFlag(environments), "--model-control-mode=explicit", "--load-model=*", "--log-verbose=1")
	if n := s.unpackings(1); n != 1 {
		t.Errorf("three models: the archive was unpacked %d times, want once", n)
	}
	pid := s.mustAsk("first").PID
	touch(t, models+"/first/1/model.py")
	s.mustLoad("first")
	if now := s.mustAsk("first").PID; now == pid || s.unpackings(1) != 1 {
		t.Errorf("a touched model.py: process %d, was %d; unpacked %d times, want a new process and no unpacking", now, pid, s.unpackings(1))
	}
	pid = s.mustAsk("first").PID
	s.mustLoad("first")
	if now := s.mustAsk("first").PID; now != pid {
		t.Errorf("a load without a change: process %d, want %d again", now, pid)
	}
	touch(t, archive)
	s.mustLoad("first")
	if now := s.mustAsk("first").PID; now == pid || s.unpackings(2) != 2 {
		t.Errorf("a touched archive: process %d, was %d; unpacked %d times, want a new process, and 2", now, pid, s.unpackings(2))
	}

	// The request executes in the old environment while the model is reloaded into the new one.
	answered := make(chan string, 1) // receives the body once
	go func() {
		_, body, _ := s.try("POST", "/v2/models/late/infer", nil, []byte(`{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`))
		answered <- body
	}()
	s.until("executing", func() bool { _, err := os.Stat(models + "/go.waits"); return err == nil })
	pack(t, archive, smallEnvironment(t, "two"))
	s.mustLoad("first")
	s.mustLoad("late")
	if got := s.marker("first"); got != "two" {
		t.Errorf("after the archive has changed: environment %q, want two", got)
	}
	if got := s.marker("second"); got != "one" {
		t.Errorf("a model that was not loaded anew: environment %q, want one", got)
	}
	if err := os.WriteFile(models+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if body := <-answered; !strings.Contains(body, `"data":["one"]`) {
		t.Errorf("the request that was under way was answered %s, want the old environment", body)
	}
	if n := s.unpackings(3); n != 3 {
		t.Errorf("unpacked %d times, want 3", n)
	}

	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	before := s.mustAsk("second")
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("restarted", func() bool { now, err := s.asks("second"); return err == nil && now.PID != before.PID })
	if got := s.marker("second"); got != "one" {
		t.Errorf("a restart without the archive: environment %q, want one", got)
	}
	status, body := s.load("first")
	if want := "Failed to get the canonical path for " + archive + "."; status == http.StatusOK || strings.Contains(body, archive) || !s.prints(want) {
		t.Errorf("load without the archive: status %d: %s, want %q in the log alone", status, body, want)
	}
	if got := s.marker("first"); got != "two" {
		t.Errorf("after a load that failed: environment %q, want two", got)
	}
}

// TestPollsSeeTheArchive checks that a polling server reloads a model after its archive has
// changed.
func TestPollsSeeTheArchive(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"models/m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/../../env.tar.gz"), "models/m/1/model.py": tellingModel,
	})
	pack(t, root+"/env.tar.gz", smallEnvironment(t, "one"))
	s := start(t, testkit.Python(t).Path, root+"/models", cacheFlag(t.TempDir()), "--model-control-mode=poll", "--repository-poll-secs=1")
	if got := s.marker("m"); got != "one" {
		t.Errorf("environment %q, want one", got)
	}
	pack(t, root+"/env.tar.gz", smallEnvironment(t, "two"))
	s.until("on the new archive", func() bool { return s.marker("m") == "two" })
}

// TestHostileArchivesAreRefused gives a server malicious and broken archives. The server must log
// the reason, write nothing outside the environment, serve its other models, and then accept a good
// archive of the same name.
func TestHostileArchivesAreRefused(t *testing.T) {
	outside := t.TempDir()
	many := smallEnvironment(t, "")
	for i := range 200 {
		many = append(many, entry{name: fmt.Sprint("share/", i)})
	}
	good := smallEnvironment(t, "good")
	with := func(more ...entry) []entry { return append(slices.Clone(good), more...) }
	for name, test := range map[string]struct {
		entries []entry
		want    string // in the log
	}{
		"above":       {with(entry{name: "../../escaped", content: "x"}), "Path contains '..'"},
		"absolute":    {with(entry{name: outside + "/escaped", content: "x"}), "Path is absolute"},
		"through":     {with(entry{name: "lnk", kind: tar.TypeSymlink, target: outside}, entry{name: "lnk/escaped", content: "x"}), "lnk"},
		"hard link":   {with(entry{name: "hard", kind: tar.TypeLink, target: "../../../../etc/passwd"}), "hard"},
		"device":      {with(entry{name: "dev", kind: tar.TypeChar}), "dev"},
		"many files":  {many, "more than 150 entries and directories; raise the limit if you trust it: --backend-config=python,env-max-files=N"},
		"no python":   {[]entry{{name: "marker", content: "x"}}, "bin/activate"},
		"not one":     {nil, "archive_read_open_filename() failed."},
		"broken off":  {good, "env.tar.gz"},
		"empty":       {nil, "env.tar.gz"},
		"wrong bytes": {good, "env.tar.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := writeFiles(t, map[string]string{
				"bad/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "bad/1/model.py": tellingModel,
				"plain/config.pbtxt": oneFloat, "plain/1/model.py": executing("pass"),
			})
			archive := root + "/bad/env.tar.gz"
			pack(t, archive, test.entries)
			content, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "not one":
				place(t, archive, []byte("this is no archive"))
			case "broken off":
				place(t, archive, content[:len(content)/2])
			case "empty":
				place(t, archive, nil)
			case "wrong bytes":
				content[len(content)/2] ^= 0xff
				place(t, archive, content)
			}
			environments := filepath.Join(t.TempDir(), "environments")
			s := launch(t, testkit.Python(t).Path, root, cacheFlag(environments), "--backend-config=python,env-max-files=150",
				"--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false")
			s.waitReady()
			if reason := s.index()["bad"].Reason; !strings.HasPrefix(reason, "Internal: the Python environment of model 'bad' cannot be used") || !s.prints(test.want) {
				t.Errorf("got reason %q, want one that tells nothing of the archive, and %q in the log", reason, test.want)
			}
			if left := unpackedIn(t, environments); name != "no python" && len(left) != 0 {
				t.Errorf("left is %q", left)
			}
			for _, place := range []string{outside, filepath.Dir(environments)} {
				if _, err := os.Lstat(place + "/escaped"); err == nil {
					t.Errorf("%s/escaped was written", place)
				}
			}
			if status, body := s.infer("plain", 4); status != http.StatusOK {
				t.Errorf("another model: status %d: %s", status, body)
			}
			pack(t, archive, good)
			s.mustLoad("bad")
			if got := s.marker("bad"); got != "good" {
				t.Errorf("a good archive of the same name: environment %q, want good", got)
			}
		})
	}
}
