package models

import (
	"errors"
	"fmt"
	"maps"
	"strings"
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
