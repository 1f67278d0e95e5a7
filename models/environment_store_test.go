package models_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
)

// in returns the config of a model with an execution environment.
func in(environment string) string {
	return latestConfig + `parameters { key: "EXECUTION_ENV_PATH" value { string_value: "` + environment + `" } }`
}

const (
	besideModel = "$$TRITON_MODEL_DIRECTORY/../env.tar.gz" // relative to a model in the store
	byURL       = "s3://bucket/models/env.tar.gz"
)

// environmentOf returns the path and content of the archive that the backend got for version 1 of a
// model.
func (s *stored) environmentOf(name string) (path, content string) {
	s.t.Helper()
	s.b.mu.Lock()
	path = s.b.envs[name+":1"].Environment
	s.b.mu.Unlock()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return path, string(text)
}

// TestEnvironmentsInAStore checks that an environment is fetched once for all models of stores and
// directories that name the same object, that a changed object reloads them, and that the file is
// removed with the last model.
func TestEnvironmentsInAStore(t *testing.T) {
	s := storing(t, nil, []string{"far", "plain"}, []string{"near"})
	s.store.Put("far/config.pbtxt", in(besideModel))
	writeConfig(t, s.folder, "near", in(byURL))
	s.store.Put("env.tar.gz", "one")
	s.renew()
	s.start()
	s.wantStates("far 1 READY; near 1 READY; plain 1 READY")
	far, content := s.environmentOf("far")
	near, _ := s.environmentOf("near")
	if far != near || content != "one" || filepath.Base(far) != "env.tar.gz" || s.store.Opened("env.tar.gz") != 1 {
		t.Errorf("got %s and %s with %q, read %d times; want one file, read once", far, near, content, s.store.Opened("env.tar.gz"))
	}
	for range 3 {
		s.look()
	}
	if s.b.openedTimes("far:1") != 1 || s.b.openedTimes("near:1") != 1 {
		t.Errorf("nothing has changed, and they were loaded %d and %d times", s.b.openedTimes("far:1"), s.b.openedTimes("near:1"))
	}
	s.store.Put("env.tar.gz", "two")
	testkit.Eventually(t, 10*time.Second, func() bool {
		s.look()
		return s.b.openedTimes("far:1") == 2 && s.b.openedTimes("near:1") == 2
	})
	if _, content := s.environmentOf("near"); content != "two" || s.store.Opened("env.tar.gz") != 2 || s.b.openedTimes("plain:1") != 1 {
		t.Errorf("got %q, read %d times; want two, read once more", content, s.store.Opened("env.tar.gz"))
	}
	// Two models and an environment, when the versions that were replaced have ended.
	testkit.Eventually(t, 10*time.Second, func() bool { return len(s.copies()) == 3 })
	s.store.Delete("env.tar.gz")
	s.look()
	s.look()
	s.wantStates("far 1 READY; near 1 READY; plain 1 READY") // loaded models keep it
	s.store.Delete("far/config.pbtxt")
	s.store.Delete("far/1/weights")
	if err := os.RemoveAll(filepath.Join(s.folder, "near")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		s.look()
		return len(s.copies()) == 1
	})
	s.wantStates("plain 1 READY")
}

// TestEnvironmentsInAStoreByRequest checks that each load request looks for a changed environment,
// and that a load which waits for a hanging store delays no other load.
func TestEnvironmentsInAStoreByRequest(t *testing.T) {
	s := storing(t, byRequest, []string{"far"}, []string{"near", "other"})
	writeConfig(t, s.folder, "near", in(byURL))
	s.store.Put("env.tar.gz", "one")
	s.start()
	load := func(name string, want int) {
		t.Helper()
		mustLoad(t, s.Registry, name)
		if n := s.b.openedTimes(name + ":1"); n != want {
			t.Errorf("%s was loaded %d times, want %d", name, n, want)
		}
	}
	load("near", 1)
	load("near", 1)
	s.store.Put("env.tar.gz", "two")
	load("near", 2)
	if _, content := s.environmentOf("near"); content != "two" {
		t.Errorf("got %q, want two", content)
	}
	unload(t, s.Registry, "near", false)
	// The versions that the loads replaced end in the background, each with its file.
	testkit.Eventually(t, 10*time.Second, func() bool { return len(s.copies()) == 0 })

	s.store.Hang(mirrortest.Read)
	ctx, end := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() { failed <- s.Load(ctx, "near", "", nil) }()
	testkit.Eventually(t, 10*time.Second, func() bool { return s.store.Waiting(mirrortest.Read) == 1 })
	load("other", 1)
	end(infer.Errorf(infer.Unavailable, "over"))
	if err := <-failed; err == nil {
		t.Error("a load from a store that hangs has succeeded")
	}
	s.store.Resume(mirrortest.Read)
	load("near", 3)

	s.store.Fail(mirrortest.List, infer.Errorf(infer.Internal, "Failed to list objects: AccessDenied"))
	if err := s.Load(t.Context(), "near", "", nil); err == nil {
		t.Error("a load whose environment cannot be looked at has succeeded")
	}
	s.wantLog("AccessDenied", 1)
	wantGeneration(t, s.Registry, "near", 1, 3)
	s.store.Fail(mirrortest.List, nil)
	testkit.Eventually(t, 10*time.Second, func() bool { return len(s.copies()) == 1 })
}

// TestEnvironmentsOfUploads checks that an uploaded model's environment is fetched from the store
// and removed with the model.
func TestEnvironmentsOfUploads(t *testing.T) {
	s := storing(t, byRequest, []string{"far"}, nil)
	s.store.Put("env.tar.gz", "one")
	s.start()
	const text = `{"backend": "fake", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}], "parameters": {"EXECUTION_ENV_PATH": {"string_value": "` + byURL + `"}}}`
	if err := s.Load(t.Context(), "new", text, map[string][]byte{"1/w": nil}); err != nil {
		t.Fatal(err)
	}
	if _, content := s.environmentOf("new"); content != "one" {
		t.Errorf("got %q, want one", content)
	}
	unload(t, s.Registry, "new", false)
	if got := s.copies(); len(got) != 0 {
		t.Errorf("after the unload: got the copies %q, want none", got)
	}
}

// TestMissingEnvironmentsFailTheLoad checks that a missing environment fails the load, and that
// Triton's text with the URL goes only to the log.
func TestMissingEnvironmentsFailTheLoad(t *testing.T) {
	for value, want := range map[string]string{
		"$$TRITON_MODEL_DIRECTORY/../other.tar.gz":     "directory or file does not exist at s3://bucket/models/other.tar.gz",
		"$$TRITON_MODEL_DIRECTORY/../../../env.tar.gz": "directory or file does not exist at s3://bucket/models/far/../../../env.tar.gz (it names no object of the bucket)",
		"s3://bucket/models/none":                      "directory or file does not exist at s3://bucket/models/none",
		"s3://bucket/models/far":                       "directory or file does not exist at s3://bucket/models/far (it is a directory: an environment in a store must be an archive, as made by conda-pack)",
		"s3://":                                        "Invalid bucket name: ''",
		"as://account":                                 "Invalid azure storage path: as://account",
	} {
		s := storing(t, byRequest, []string{"far"}, nil)
		s.store.Put("far/config.pbtxt", in(value))
		s.start()
		err := s.Load(t.Context(), "far", "", nil)
		var shown *infer.Error
		if !errors.As(err, &shown) || !strings.HasSuffix(strings.TrimSpace(shown.Detail), want+";") || strings.Contains(shown.Message, "s3:") {
			t.Errorf("%s: got error %v, want …%s", value, err, want)
		}
		if got := s.copies(); len(got) != 0 {
			t.Errorf("%s: the copies %q are left", value, got)
		}
	}
	s := storing(t, byRequest, []string{"far"}, nil)
	s.store.Put("far/config.pbtxt", in("$$TRITON_MODEL_DIRECTORY/../far/env.tar.gz"))
	s.store.Put("far/env.tar.gz", "inside")
	s.start()
	mustLoad(t, s.Registry, "far")
	if path, content := s.environmentOf("far"); content != "inside" || !strings.HasPrefix(path, s.copies()[0]+"/") {
		t.Errorf("got %s with %q, want a file of the copy", path, content)
	}
}
