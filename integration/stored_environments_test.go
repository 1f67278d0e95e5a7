package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/objectstore/objectstoretest"
)

// packed returns the content of an archive of a smallEnvironment.
func packed(t *testing.T, marker string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "env.tar.gz")
	pack(t, path, smallEnvironment(t, marker))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestEnvironmentInAnObjectStore checks environments in a store for models of a store, of a
// directory and of a Python-based backend.
func TestEnvironmentInAnObjectStore(t *testing.T) {
	followEnvironment(t, newSimpleStore(t).bucket(t))
}

// TestEnvironmentInRealObjectStores runs the same test with SeaweedFS and fake-gcs-server (make
// stores).
func TestEnvironmentInRealObjectStores(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *objectstoretest.Store{"s3": objectstoretest.S3, "gs": objectstoretest.GCS} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			followEnvironment(t, &bucket{url: s.URL, environment: s.Environment, put: func(key, content string) { s.Put(t, key, content) }, drop: func(key string) { s.Drop(t, key) }})
		})
	}
}

func followEnvironment(t *testing.T, b *bucket) {
	mounts := b.setUp(t)
	t.Setenv("TRITON_GCS_MOUNT_DIRECTORY", mounts)
	b.put("repo/far/config.pbtxt", inEnvironment("$$TRITON_MODEL_DIRECTORY/../env.tar.gz"))
	b.put("repo/far/1/model.py", tellingModel)
	b.put("repo/env.tar.gz", packed(t, "one"))
	b.put("envs/other.tar.gz", packed(t, "other"))
	near := writeFiles(t, map[string]string{
		"near/config.pbtxt": inEnvironment(b.url + "/repo/env.tar.gz"), "near/1/model.py": tellingModel,
		"based/config.pbtxt": strings.Replace(inEnvironment(b.url+"/envs/other.tar.gz"), `"python"`, `"llm"`, 1), "based/1/weights": "",
	})
	backends := writeFiles(t, map[string]string{"llm/model.py": tellingModel})
	s := start(t, testkit.Python(t).Path, b.url+"/repo", "--model-repository="+near, "--backend-directory="+backends, cacheFlag(t.TempDir()),
		"--model-control-mode=poll", "--repository-poll-secs=1")
	for model, want := range map[string]string{"far": "one", "near": "one", "based": "other"} {
		if got := s.marker(model); got != want {
			t.Errorf("%s: environment %q, want %q", model, got, want)
		}
	}
	if n := s.printed("fetched execution environment "+b.url+"/repo/env.tar.gz: ", 1); n != 1 {
		t.Errorf("the archive of two models was fetched %d times, want once", n)
	}
	b.put("repo/env.tar.gz", packed(t, "two"))
	s.until("on the new archive", func() bool {
		far, farErr := s.asks("far")
		near, nearErr := s.asks("near")
		return farErr == nil && nearErr == nil && far.marker() == "two" && near.marker() == "two"
	})
	s.until("one copy of the model and two archives", func() bool { return len(copiesIn(t, mounts)) == 3 })
	s.stop()
	if left, err := os.ReadDir(mounts); err != nil || len(left) > 0 {
		t.Errorf("the end leaves %v, %v", left, err)
	}
}

// marker returns the content of the file "marker" of a smallEnvironment.
func (t told) marker() string {
	text, _ := os.ReadFile(filepath.Join(t.Environment["VIRTUAL_ENV"], "marker"))
	return string(text)
}

// TestEnvironmentsThatAStoreDoesNotGive checks that an unavailable environment fails only the loads
// of its models, with the reason in the log, and that a hanging store delays no other model.
func TestEnvironmentsThatAStoreDoesNotGive(t *testing.T) {
	store := newSimpleStore(t)
	b := store.bucket(t)
	b.setUp(t)
	t.Setenv("AWS_ENDPOINT_URL", store.server.URL) // allows models to name objects of the store
	b.put("envs/damaged.tar.gz", packed(t, "one")[:200])
	b.put("envs/env.tar.gz", packed(t, "one"))
	model := func(name, value string) map[string]string {
		return map[string]string{name + "/config.pbtxt": inEnvironment(value), name + "/1/model.py": tellingModel}
	}
	files := map[string]string{}
	for name, value := range map[string]string{
		"absent": b.url + "/envs/none.tar.gz", "damaged": b.url + "/envs/damaged.tar.gz", "good": b.url + "/envs/env.tar.gz", "refused": b.url + "/others/env.tar.gz", "local": "",
	} {
		for path, text := range model(name, value) {
			files[path] = text
		}
	}
	files["local/config.pbtxt"] = `backend: "python"`
	root := writeFiles(t, files)
	output, err := exec.Command(mustBuild(t), "check", root, "--import", "--model=absent", "--backend-config=python,python-executable="+testkit.Python(t).Path).CombinedOutput()
	if want := "directory or file does not exist at " + b.url + "/envs/none.tar.gz"; err == nil || strings.Count(string(output), want) != 1 {
		t.Errorf("check: got %v, %s; want %s once", err, output, want)
	}
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", cacheFlag(t.TempDir()))
	for name, want := range map[string]string{
		"absent":  "directory or file does not exist at " + b.url + "/envs/none.tar.gz",
		"damaged": "damaged.tar.gz",
	} {
		if status, text := s.load(name); status != http.StatusBadRequest || strings.Contains(text, want) || !s.prints(want) {
			t.Errorf("%s: got status %d: %s; want %s in the log alone", name, status, text, want)
		}
	}
	store.set(false, http.StatusForbidden)
	if status, text := s.load("refused"); status != http.StatusBadRequest || !s.prints("Unable to create S3 filesystem client. Check account credentials. Exception: 'SlowDown' Message: 'out of order'") {
		t.Errorf("refused: got status %d: %s", status, text)
	}
	store.set(true, 0)
	loaded := make(chan string, 1)
	go func() {
		status, text, _ := s.try("POST", "/v2/repository/models/good/load", nil, nil)
		loaded <- fmt.Sprint(status, text)
	}()
	s.until("the load hangs", func() bool { return store.held() > 0 })
	s.mustLoad("local")
	if status, text, err := s.try("GET", "/v2/health/live", nil, nil); status != http.StatusOK || err != nil {
		t.Errorf("live: got status %d, %v: %s", status, err, text)
	}
	store.set(false, 0)
	if got := <-loaded; got != "200" {
		t.Errorf("when the store answers: got %s, want 200", got)
	}
	if got := s.marker("good"); got != "one" {
		t.Errorf("environment %q, want one", got)
	}
}

func mustBuild(t *testing.T) string {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
