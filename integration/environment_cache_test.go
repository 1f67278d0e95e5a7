package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// isUnpacking reports whether a cache contains files of a largeEnvironment.
func isUnpacking(environments string) bool {
	found, err := filepath.Glob(filepath.Join(environments, "*", "share", "1?"))
	return err == nil && len(found) > 0
}

// TestLoadsWhileUnpacking loads a model while an archive is unpacked for another. Then it stops the
// server, which must abandon the unpacking and leave nothing of it.
func TestLoadsWhileUnpacking(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
		"plain/config.pbtxt": oneFloat, "plain/1/model.py": executing("pass"),
	})
	environments := filepath.Join(t.TempDir(), "environments")
	pack(t, root+"/m/env.tar.gz", largeEnvironment(t))
	s := start(t, testkit.Python(t).Path, root, cacheFlag(environments), "--model-control-mode=explicit")
	loaded := make(chan struct{}) // closed when the load has had a reply or the server is gone
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
	if strings.Contains(s.log.String(), "environment unpacked") {
		t.Fatal("the archive was unpacked before the other model was loaded: make it larger")
	}
	if left := unpackedIn(t, environments); len(left) != 0 {
		t.Errorf("left is %q", left)
	}
}

// TestKilledWhileUnpacking kills a server while it is unpacking. The next server must unpack the
// archive from the start and remove the remains.
func TestKilledWhileUnpacking(t *testing.T) {
	testkit.Story(t)
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
	if strings.Contains(s.log.String(), "environment unpacked") {
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

// TestServersUnpackOnce starts ten servers at once with an empty cache. Only one may unpack the
// archive.
func TestServersUnpackOnce(t *testing.T) {
	testkit.Story(t)
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

// TestReadOnlyServer runs a server as a user without write access to the repository and the cache.
// It must use the environments in the cache and reject a model whose environment is not there.
// Without a configured cache it must use a temporary one.
func TestReadOnlyServer(t *testing.T) {
	testkit.Story(t)
	archive := testkit.Environment(t, "conda.tar.gz") // any user can run its interpreter
	base, err := os.MkdirTemp("", "read-only-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	// mode makes everything below a directory writable for its owner, or read-only.
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
	testkit.WriteFiles(t, models, map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
		"late/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "late/1/model.py": tellingModel,
	})
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
	if want := "cannot be used, the server's log has the reason"; status == http.StatusOK || !strings.Contains(errorOf(t, body), want) {
		t.Errorf("an environment that is not there: status %d: %s, want %q", status, body, want)
	}
	if want := "write to " + environments + ": permission denied"; !s.prints(want) {
		t.Errorf("the log has not %q", want)
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

// TestSecondStartReadsNoEnvironment checks that the first start with a large environment reads its
// archive, and that the second reads hardly more than a server without an environment.
func TestSecondStartReadsNoEnvironment(t *testing.T) {
	pieces, piece := 4, int64(16<<20)
	if testkit.Long() {
		pieces, piece = 8, 256<<20
	}
	size := int64(pieces) * piece
	root := writeFiles(t, map[string]string{
		"env/m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar"), "env/m/1/model.py": tellingModel,
		"without/m/1/model.py": tellingModel,
	})
	packHollow(t, root+"/env/m/env.tar", smallEnvironment(t, "large"), pieces, piece)
	flags := cacheFlag(filepath.Join(t.TempDir(), "environments"))
	// run returns the number of bytes that a server reads until it is ready, and the time until
	// then.
	run := func(repository string) (read int64, took time.Duration) {
		t.Helper()
		began := time.Now()
		s := start(t, testkit.Python(t).Path, root+"/"+repository, flags)
		took = time.Since(began)
		s.mustAsk("m")
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.cmd.Process.Pid))
		if err != nil {
			t.Skipf("what a process has read cannot be told here: %v", err)
		}
		if _, err := fmt.Sscanf(string(text), "rchar: %d", &read); err != nil {
			t.Fatal(err)
		}
		s.stop()
		return read, took
	}
	first, firstTook := run("env")
	second, secondTook := run("env")
	without, withoutTook := run("without")
	t.Logf("%d MB: the first start read %d MB in %s, the second %d KB in %s, one without an environment %d KB in %s",
		size>>20, first>>20, firstTook, second>>10, secondTook, without>>10, withoutTook)
	if first < size {
		t.Errorf("the first start read %d bytes, want the archive, %d", first, size)
	}
	if second > without+size/16 {
		t.Errorf("the second start read %d bytes, want hardly more than one without an environment, %d", second, without)
	}
}
