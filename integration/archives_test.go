package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
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

// entry is one of an archive: a file, unless kind says otherwise.
type entry struct {
	name, content string
	kind          byte // as in package tar; 0: a file
	target        string
}

// smallEnvironment are the entries of an environment whose python is that of the tests. It has
// a file "marker" with the given content.
func smallEnvironment(t *testing.T, marker string) []entry {
	t.Helper()
	return []entry{
		{name: "bin/", kind: tar.TypeDir},
		{name: "bin/python", content: "#!/bin/sh\nexec '" + testkit.Python(t).Path + "' \"$@\"\n"},
		{name: "bin/python3", kind: tar.TypeSymlink, target: "python"},
		{name: "bin/activate", content: "exit 1 # it is not executed\n"},
		{name: "marker", content: marker},
	}
}

// pack writes a tar.gz to path in one instant: under another name, then renamed.
func pack(t *testing.T, path string, entries []entry) {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: 0o755, Typeflag: e.kind, Linkname: e.target, Size: int64(len(e.content))}
		if e.kind == 0 {
			head.Typeflag = tar.TypeReg
		}
		if err := archive.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	place(t, path, b.Bytes())
}

// place puts a file in the place of another.
func place(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// marker is what the environment of a model has in its marker.
func (s *runningServer) marker(model string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.mustAsk(model).Environment["VIRTUAL_ENV"], "marker"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// unpackings is how often the log says that an archive was unpacked, once it says it so often at least.
func (s *runningServer) unpackings(least int) int {
	return s.printed("Extracting Python execution env ", least)
}

// cacheFlag has a server keep its environments in a directory.
func cacheFlag(directory string) string {
	return "--backend-config=python,env-cache-directory=" + directory
}

// unpackedIn lists the environments in a cache.
func unpackedIn(t *testing.T, directory string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(directory, "*", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// load loads a model and returns the status and the answer.
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

// touch gives a file another time.
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

// lateModel is a tellingModel whose execute waits for a file and then looks into its environment.
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

// TestArchiveChangesUnderAServer touches, changes and removes the archive of two models: each
// content is unpacked once, what runs keeps its environment, and restarts keep it too.
func TestArchiveChangesUnderAServer(t *testing.T) {
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

	// A request is under way in the old environment while the model is loaded into the new one.
	answered := make(chan string, 1) // one value, the body
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
	if want := "Failed to get the canonical path for " + archive + "."; status == http.StatusOK || !strings.Contains(errorOf(t, body), want) {
		t.Errorf("load without the archive: status %d: %s, want %q", status, body, want)
	}
	if got := s.marker("first"); got != "two" {
		t.Errorf("after a load that failed: environment %q, want two", got)
	}
}

// TestPollsSeeTheArchive changes the archive of a model while the server polls.
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

// largeFiles are the files of a largeEnvironment.
const largeFiles = 4000

// largeEnvironment are the entries of an environment that takes a while to unpack: 130 MB in
// largeFiles files.
func largeEnvironment(t *testing.T) []entry {
	t.Helper()
	entries := smallEnvironment(t, "one")
	noise := make([]byte, 64<<10)
	chance := rand.NewChaCha8([32]byte{})
	for i := range largeFiles {
		_, _ = chance.Read(noise)
		entries = append(entries, entry{name: fmt.Sprintf("share/%d", i), content: string(noise[:1+i*16%len(noise)])})
	}
	return entries
}

// isUnpacking reports whether files of a largeEnvironment are in a cache.
func isUnpacking(environments string) bool {
	found, err := filepath.Glob(filepath.Join(environments, "*", "share", "1?"))
	return err == nil && len(found) > 0
}

// TestLoadsWhileUnpacking loads a model while an archive is unpacked for another, and then ends
// the server, which gives the unpacking up and leaves nothing of it.
func TestLoadsWhileUnpacking(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
		"plain/config.pbtxt": oneFloat, "plain/1/model.py": executing("pass"),
	})
	environments := filepath.Join(t.TempDir(), "environments")
	pack(t, root+"/m/env.tar.gz", largeEnvironment(t))
	s := start(t, testkit.Python(t).Path, root, cacheFlag(environments), "--model-control-mode=explicit")
	loaded := make(chan struct{}) // closed when the load has been answered, or the server has gone
	go func() {
		defer close(loaded)
		_, _, _ = s.try("POST", "/v2/repository/models/m/load", nil, nil)
	}()
	s.until("unpacking", func() bool { return isUnpacking(environments) })
	s.mustLoad("plain")
	if status, body := s.infer("plain", 4); status != http.StatusOK {
		t.Errorf("a model that was loaded meanwhile: status %d: %s", status, body)
	}
	s.stop()
	<-loaded
	if strings.Contains(s.log.String(), "environment made") {
		t.Fatal("the archive was unpacked before the other model was loaded: make it larger")
	}
	if left := unpackedIn(t, environments); len(left) != 0 {
		t.Errorf("left is %q", left)
	}
}

// TestKilledWhileUnpacking kills a server in the middle of an unpacking: the next one unpacks
// anew, and nothing of the first is left.
func TestKilledWhileUnpacking(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"models/m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "models/m/1/model.py": tellingModel,
	})
	environments := filepath.Join(t.TempDir(), "environments")
	pack(t, root+"/models/m/env.tar.gz", largeEnvironment(t))
	s := launch(t, testkit.Python(t).Path, root+"/models", cacheFlag(environments), "--log-verbose=1")
	s.until("unpacking", func() bool { return isUnpacking(environments) })
	processes := s.descendants()
	_ = s.cmd.Process.Kill()
	s.wait(startLimit)
	s.gone(processes)
	if strings.Contains(s.log.String(), "environment made") {
		t.Fatal("the server was killed too late: make the archive larger")
	}
	next := start(t, testkit.Python(t).Path, root+"/models", cacheFlag(environments), "--log-verbose=1")
	if got := next.marker("m"); got != "one" || next.unpackings(1) != 1 {
		t.Errorf("the next server: environment %q, unpacked %d times, want one, and once", got, next.unpackings(1))
	}
	share := filepath.Join(next.mustAsk("m").Environment["VIRTUAL_ENV"], "share")
	if files, err := os.ReadDir(share); err != nil || len(files) != largeFiles {
		t.Errorf("%d files in %s, error %v, want %d", len(files), share, err, largeFiles)
	}
	next.until("clean", func() bool { return len(unpackedIn(t, environments)) == 1 })
}

// TestServersUnpackOnce starts ten servers at once on an empty cache.
func TestServersUnpackOnce(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
	})
	environments := filepath.Join(t.TempDir(), "environments")
	pack(t, root+"/m/env.tar.gz", smallEnvironment(t, "one"))
	servers := make([]*runningServer, 10)
	for i := range servers {
		servers[i] = launch(t, testkit.Python(t).Path, root, cacheFlag(environments), "--log-verbose=1")
	}
	unpacked := 0
	for _, s := range servers {
		s.waitReady()
		if got := s.marker("m"); got != "one" {
			t.Errorf("environment %q, want one", got)
		}
		unpacked += s.unpackings(0)
	}
	if found := unpackedIn(t, environments); unpacked != 1 || len(found) != 1 {
		t.Errorf("unpacked %d times to %q, want once", unpacked, found)
	}
}

// TestHostileArchivesAreRefused gives a server archives that are made to harm it. It says which
// entry is why, writes nothing elsewhere, serves its other models, and takes a good
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
		want    string // in the load error
	}{
		"above":       {with(entry{name: "../../escaped", content: "x"}), "Path contains '..'"},
		"absolute":    {with(entry{name: outside + "/escaped", content: "x"}), "Path is absolute"},
		"through":     {with(entry{name: "lnk", kind: tar.TypeSymlink, target: outside}, entry{name: "lnk/escaped", content: "x"}), "lnk"},
		"hard link":   {with(entry{name: "hard", kind: tar.TypeLink, target: "../../../../etc/passwd"}), "hard"},
		"device":      {with(entry{name: "dev", kind: tar.TypeChar}), "dev"},
		"many files":  {many, "more than 150 entries and directories; set a larger limit if it is to be trusted: --backend-config=python,env-max-files=N"},
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
			if reason := s.index()["bad"].Reason; !strings.Contains(reason, test.want) || !strings.HasPrefix(reason, "Internal: ") {
				t.Errorf("got reason %q, want %q in it", reason, test.want)
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

// TestReadOnlyServer runs a server as a user who may write neither to the repository nor to the
// cache, in which another has unpacked the environment: it serves from there, and refuses a model
// whose environment is not there. Without a named cache it has one of its own, which ends with it.
func TestReadOnlyServer(t *testing.T) {
	archive := testkit.Environment(t, "conda.tar.gz") // with an interpreter that any user may run
	base, err := os.MkdirTemp("", "read-only-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	// mode sets the modes below a directory: writable for its owner, or for nobody.
	mode := func(top string, writable bool) {
		t.Helper()
		if err := filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.Type()&os.ModeSymlink != 0 {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			bits := info.Mode().Perm()&0o700&^0o200 | 0o400
			if writable {
				bits |= 0o200
			}
			return os.Chmod(path, bits|bits>>3|bits>>6&^0o022)
		}); err != nil {
			t.Fatal(err)
		}
	}
	models, environments, temporary := base+"/models", base+"/environments", base+"/tmp"
	for path, text := range map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
		"late/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "late/1/model.py": tellingModel,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(models, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(models, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	place(t, models+"/m/env.tar.gz", content)
	pack(t, models+"/late/env.tar.gz", smallEnvironment(t, "late"))
	flags := []string{cacheFlag(environments), "--model-control-mode=explicit", "--load-model=m", "--log-verbose=1"}
	start(t, testkit.Python(t).Path, models, flags...).stop()

	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(binary); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base+"/nereid", content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	becomes := "os.setgid(65534); os.setuid(65534); "
	if os.Getuid() != 0 {
		becomes = ""
	} else if err := os.Chown(temporary, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	mode(models, false)
	mode(environments, false)
	if err := os.Chmod(base, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Chmod(base, 0o755)
		mode(models, true)
		mode(environments, true)
	})
	t.Setenv("HOME", base)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", temporary)
	program := []string{testkit.Python(t).Path, "-c", "import os, sys; os.chdir('/'); " + becomes + "os.execv('" + base + "/nereid', sys.argv[1:])"}
	s := launchBehind(t, program, "", models, flags...)
	s.waitReady()
	got := s.mustAsk("m")
	if directory := got.Environment["VIRTUAL_ENV"]; filepath.Dir(directory) != environments {
		t.Errorf("the environment is %s, want one in %s", directory, environments)
	}
	if n := s.unpackings(0); n != 0 {
		t.Errorf("unpacked %d times, want not at all", n)
	}
	status, body := s.load("late")
	if want := "write to " + environments + ": permission denied"; status == http.StatusOK || !strings.Contains(errorOf(t, body), want) {
		t.Errorf("an environment that is not there: status %d: %s, want %q", status, body, want)
	}
	s.stop()

	s = launchBehind(t, program, "", models, flags[1:]...)
	s.waitReady()
	if directory := s.mustAsk("m").Environment["VIRTUAL_ENV"]; !strings.HasPrefix(directory, temporary+"/") {
		t.Errorf("without a named cache the environment is %s, want one in %s", directory, temporary)
	}
	s.stop()
	left, err := filepath.Glob(temporary + "/*/*/bin")
	if err != nil || len(left) != 0 {
		t.Errorf("left is %v, error %v, want nothing of the private environment", left, err)
	}
}
