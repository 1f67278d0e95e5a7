package integration

import (
	"context"
	"crypto/md5" //nolint:gosec // an S3 ETag is an MD5 sum
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/objectstore/objectstoretest"
)

// bucket gives a test access to an object store: a real one or simpleStore.
type bucket struct {
	url         string
	environment map[string]string
	put         func(key, content string)
	drop        func(key string)
}

// simpleStore is an S3 store with one bucket. It supports the server's requests, and can be made to
// hang or fail.
type simpleStore struct {
	server *httptest.Server

	mu      sync.Mutex
	objects map[string]string
	hang    chan struct{} // requests hang until it is closed; nil: they do not hang
	waiting int
	refuse  int // status of all replies; 0: normal replies
}

func newSimpleStore(t *testing.T) *simpleStore {
	t.Helper()
	s := &simpleStore{objects: map[string]string{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.server.Close)
	return s
}

func (s *simpleStore) bucket(t *testing.T) *bucket {
	t.Helper()
	address, err := url.Parse(s.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &bucket{
		url: "s3://" + address.Host + "/models", environment: map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"},
		put: func(key, content string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.objects[key] = content
		},
		drop: func(key string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.objects, key)
		},
	}
}

// set changes how the store replies.
func (s *simpleStore) set(hangs bool, refuse int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hang != nil {
		close(s.hang)
	}
	s.hang, s.refuse = nil, refuse
	if hangs {
		s.hang = make(chan struct{})
	}
}

func (s *simpleStore) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

func (s *simpleStore) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hang, refuse := s.hang, s.refuse
	if hang != nil {
		s.waiting++
	}
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/xml")
	if refuse != 0 {
		w.WriteHeader(refuse)
		fmt.Fprint(w, "<Error><Code>SlowDown</Code><Message>out of order</Message></Error>")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/models/")
	content, there := s.objects[key]
	switch {
	case r.URL.Query().Has("list-type"):
		s.list(w, r.URL.Query().Get("prefix"))
	case !there && key != "" && key != r.URL.Path:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
	case there && r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != etag(content):
		w.WriteHeader(http.StatusPreconditionFailed)
	case there:
		w.Header().Set("ETag", etag(content))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	}
}

func etag(content string) string {
	sum := md5.Sum([]byte(content)) //nolint:gosec // as above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *simpleStore) list(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, "<ListBucketResult><IsTruncated>false</IsTruncated>")
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		fmt.Fprint(w, "<Contents><Key>")
		_ = xml.EscapeText(w, []byte(key))
		fmt.Fprintf(w, "</Key><Size>%d</Size><ETag>%s</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>", len(s.objects[key]), strings.ReplaceAll(etag(s.objects[key]), `"`, "&quot;"))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

const storedConfig = `backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// storedModel returns a word, and the name and files of its repository.
const storedModel = `import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        top = args["model_repository"]
        with open(os.path.join(top, args["model_version"], "word")) as f:
            self.text = f.read() + " " + os.path.basename(top)[:6] + " " + " ".join(sorted(os.listdir(top)))

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.text], dtype=object))]) for _ in requests]
`

// putStored stores a model with one version that returns word.
func (b *bucket) putStored(name, version, word string) {
	b.put("repo/"+name+"/config.pbtxt", storedConfig)
	b.put("repo/"+name+"/"+version+"/model.py", storedModel)
	b.put("repo/"+name+"/"+version+"/word", word)
}

// setUp configures the test's servers to read the bucket, and returns the directory of their
// copies.
func (b *bucket) setUp(t *testing.T) (mounts string) {
	t.Helper()
	for name, value := range b.environment {
		t.Setenv(name, value)
	}
	mounts = t.TempDir()
	t.Setenv("TRITON_AWS_MOUNT_DIRECTORY", mounts)
	return mounts
}

func copiesIn(t *testing.T, mounts string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(mounts, "nereid-models-*", "folder*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// says returns the output of a model or its error.
func (s *runningServer) says(model string) string {
	s.t.Helper()
	_, text := s.request("POST", "/v2/models/"+model+"/infer", `{"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}`)
	_, data, found := strings.Cut(text, `"data":["`)
	if !found {
		return text
	}
	answer, _, _ := strings.Cut(data, `"]`)
	return answer
}

// awaitSays waits until a model returns the given output.
func (s *runningServer) awaitSays(model, want string) {
	s.t.Helper()
	s.until(model+" says "+want, func() bool { return s.says(model) == want })
}

// TestRepositoryInAnObjectStore checks that a polling server follows uploads, changes and removals
// of models in a store.
func TestRepositoryInAnObjectStore(t *testing.T) {
	s := newSimpleStore(t)
	followStore(t, s.bucket(t))
}

// TestRepositoryInARealObjectStore runs the same test with SeaweedFS (make stores).
func TestRepositoryInARealObjectStore(t *testing.T) {
	s := objectstoretest.S3(t)
	followStore(t, &bucket{url: s.URL, environment: s.Environment, put: func(key, content string) { s.Put(t, key, content) }, drop: func(key string) { s.Drop(t, key) }})
}

func followStore(t *testing.T, b *bucket) {
	python := oldestAndNewest(t)[0]
	mounts := b.setUp(t)
	b.putStored("far", "1", "one")
	near := writeFiles(t, map[string]string{"near/config.pbtxt": storedConfig, "near/1/model.py": storedModel, "near/1/word": "near"})
	s := start(t, python.Path, b.url+"/repo", "--model-repository="+near, "--model-control-mode=poll", "--repository-poll-secs=1")
	if got := s.says("far"); got != "one folder 1 config.pbtxt" {
		t.Errorf("far says %q", got)
	}
	if got := s.says("near"); !strings.HasPrefix(got, "near ") {
		t.Errorf("near says %q", got)
	}
	b.put("repo/far/1/word", "other")
	s.awaitSays("far", "other folder 1 config.pbtxt")
	b.putStored("far", "2", "two")
	s.awaitSays("far", "two folder 2 config.pbtxt") // without the version that is not served
	b.putStored("new", "1", "new")
	s.awaitSays("new", "new folder 1 config.pbtxt")
	for _, file := range []string{"config.pbtxt", "1/model.py", "1/word"} {
		b.drop("repo/new/" + file)
	}
	s.until("new is gone", func() bool { return strings.Contains(s.says("new"), "no available versions") })
	s.until("one copy is left", func() bool { return len(copiesIn(t, mounts)) == 1 })
	s.wantSamples(`nereid_repository_failures_total{repository="` + b.url + `/repo"} 0`)
	s.stop()
	if left, err := os.ReadDir(mounts); err != nil || len(left) > 0 {
		t.Errorf("the end leaves %v, %v", left, err)
	}
}

// TestObjectStoreThatFails checks that loaded models continue during an outage of the store, and
// that loads work after it. The copies of a killed server must not be left over.
func TestObjectStoreThatFails(t *testing.T) {
	testkit.Story(t)
	store := newSimpleStore(t)
	b := store.bucket(t)
	python := oldestAndNewest(t)[0]
	mounts := b.setUp(t)
	b.putStored("far", "1", "one")
	s := start(t, python.Path, b.url+"/repo", "--model-control-mode=poll", "--repository-poll-secs=1")
	store.set(false, http.StatusForbidden)
	b.put("repo/far/1/word", "other")
	s.until("the log names the outage", func() bool { return s.prints("failed to poll model repository '" + b.url + "/repo': ") })
	s.until("several looks fail", func() bool { return s.sample(`nereid_repository_failures_total{repository="`+b.url+`/repo"}`) >= 3 })
	if got := s.says("far"); got != "one folder 1 config.pbtxt" {
		t.Errorf("in the outage: far says %q", got)
	}
	store.set(false, 0)
	s.awaitSays("far", "other folder 1 config.pbtxt")
	if n := strings.Count(s.log.String(), "failed to poll model repository"); n != 1 {
		t.Errorf("the log names the outage %d times, want once", n)
	}
	s.until("one copy is left", func() bool { return len(copiesIn(t, mounts)) == 1 })
	children := s.descendants()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.wait(startLimit)
	s.gone(children)
	if left := copiesIn(t, mounts); len(left) != 1 {
		t.Fatalf("a server that is killed leaves %v, want one copy", left)
	}
	next := start(t, python.Path, b.url+"/repo")
	if got := copiesIn(t, mounts); len(got) != 1 {
		t.Errorf("the next server has %v, want its own copy alone", got)
	}
	next.stop()
}

// TestObjectStoreThatHangs checks that a hanging store delays neither requests nor loads from other
// repositories nor the shutdown.
func TestObjectStoreThatHangs(t *testing.T) {
	store := newSimpleStore(t)
	b := store.bucket(t)
	python := oldestAndNewest(t)[0]
	b.setUp(t)
	b.putStored("far", "1", "one")
	b.putStored("other", "1", "other")
	near := writeFiles(t, map[string]string{"near/config.pbtxt": storedConfig, "near/1/model.py": storedModel, "near/1/word": "near"})
	s := start(t, python.Path, b.url+"/repo", "--model-repository="+near, "--model-control-mode=explicit", "--load-model=far")
	store.set(true, 0)
	loaded := make(chan string, 1)
	go func() {
		_, text, _ := s.try("POST", "/v2/repository/models/other/load", nil, nil)
		loaded <- text
	}()
	s.until("the load hangs", func() bool { return store.held() > 0 })
	if got := s.says("far"); got != "one folder 1 config.pbtxt" {
		t.Errorf("far says %q", got)
	}
	if status, text := s.request("POST", "/v2/repository/models/near/load", ""); status != http.StatusOK {
		t.Errorf("near: got status %d: %s", status, text)
	}
	for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
		if status, text, err := s.try("GET", path, nil, nil); status != http.StatusOK || err != nil {
			t.Errorf("%s: got status %d, %v: %s", path, status, err, text)
		}
	}
	if index := s.index(); len(index) != 3 {
		t.Errorf("got the index %v, want three models", index)
	}
	s.wantSamples(`nereid_repository_copies_total{repository="` + b.url + `/repo"} 1`)
	s.stop() // fails unless the server stops in time with status 0
	if text := <-loaded; strings.Contains(text, "{}") {
		t.Errorf("the load has succeeded: %s", text)
	}
}

// TestStartWithoutAStore checks that a server whose store is unavailable fails to start with
// Triton's error, and that `nereid check` can check models in a store.
func TestStartWithoutAStore(t *testing.T) {
	store := newSimpleStore(t)
	b := store.bucket(t)
	b.setUp(t)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	b.put("repo/m/config.pbtxt", storedConfig+"inputs { }")
	b.put("repo/m/1/model.py", storedModel)
	output, _ := exec.Command(binary, "check", b.url+"/repo").CombinedOutput()
	if want := b.url + "/repo/m/config.pbtxt:4:1: error: unknown field: inputs; did you mean input?\n"; !strings.HasPrefix(string(output), want) {
		t.Errorf("check: got %s, want %s", output, want)
	}
	for _, test := range []struct {
		refuse int
		path   string
		flag   string
		want   string
	}{
		{http.StatusForbidden, "/repo", "--strict-readiness=true", "error: creating server: Internal - Unable to create S3 filesystem client. Check account credentials. Exception: 'SlowDown' Message: 'out of order'"},
		{0, "/nothing", "--strict-readiness=true", "error: creating server: Invalid argument - repository path is not a valid directory"},
		{0, "/repo", "--dev", "error: creating server: Internal - Repository.Develop (--dev) follows the sources in directories, and a repository is in an object store: copy the model into a directory and serve that"},
	} {
		store.set(false, test.refuse)
		command := exec.Command(binary, "--model-repository="+b.url+test.path, "--allow-grpc=false", "--allow-metrics=false", "--http-ui=false", fmt.Sprintf("--http-port=%d", testkit.Port(t)), test.flag)
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), test.want+"\n") {
			t.Errorf("%s: got %v, %s; want %s", test.path, err, output, test.want)
		}
	}
}

// TestDeskWithAStore checks that `nereid serve` can serve a repository in a store, and fails to
// start if the store rejects its requests.
func TestDeskWithAStore(t *testing.T) {
	store := newSimpleStore(t)
	b := store.bucket(t)
	mounts := b.setUp(t)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	b.putStored("m", "1", "first")
	store.set(false, http.StatusForbidden)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	output, err := exec.CommandContext(ctx, binary, "serve", b.url+"/repo", "--allow-grpc=false", "--allow-metrics=false", "--http-ui=false", fmt.Sprintf("--http-port=%d", testkit.Port(t))).CombinedOutput()
	if want := "error: creating server: Internal - Unable to create S3 filesystem client. Check account credentials."; err == nil || !strings.Contains(string(output), want) {
		t.Errorf("a store that refuses: got %v, %s; want %s", err, output, want)
	}
	store.set(false, 0)
	s := launchProgram(t, []string{binary, "serve"}, testkit.Python(t).Path, b.url+"/repo")
	s.waitReady()
	if got := s.says("m"); got != "first folder 1 config.pbtxt" {
		t.Errorf("m says %q", got)
	}
	s.stop()
	if left := copiesIn(t, mounts); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
