package models

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestTroublesOfRemovedModelsAreForgotten checks an invariant: the number and the length of the
// recorded reasons are bounded. A sweep drops those of models without a directory.
func TestTroublesOfRemovedModelsAreForgotten(t *testing.T) {
	opened, err := repository.Open([]string{testkit.WriteFiles(t, t.TempDir(), map[string]string{"a/": "", "b/": ""})}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	troubles := troubles{repository: opened}
	a, b := repository.Identity{Name: "a"}, repository.Identity{Name: "b"}
	troubles.note(a, errors.New(strings.Repeat("no", maxReasonBytes)))
	for i := range maxTroubles - 1 {
		troubles.reasons[repository.Identity{Name: fmt.Sprint("gone", i)}] = "no"
	}
	if n := len(troubles.models()); n != maxTroubles {
		t.Fatalf("%d models have a reason, want %d", n, maxTroubles)
	}
	troubles.note(b, errors.New("no"))
	if got, want := troubles.models(), repository.SetOf(a, b); !maps.Equal(got, want) {
		t.Errorf("%d models have a reason, want %v", len(got), want)
	}
	if n := len(troubles.of(a)); n > maxReasonBytes {
		t.Errorf("a reason has %d bytes", n)
	}
}

// TestDiagnosesReadNoPipes checks an invariant: the diagnosis of a configuration that is a pipe
// does not wait for a writer.
func TestDiagnosesReadNoPipes(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"a/": ""})
	pipe := filepath.Join(root, "a", "config.pbtxt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	id := repository.Identity{Name: "a"}
	if fault := diagnose(opened, id, errors.New(pipe+" is not a regular file")); strings.HasPrefix(fault.Source, pipe+":") {
		t.Errorf("got a line in a pipe: %s", fault.Source)
	}
}
