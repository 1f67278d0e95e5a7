package catalog

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// ids makes a set of models by their names.
func ids(names string) repository.Set {
	set := make(repository.Set)
	for _, name := range strings.Fields(names) {
		set[repository.Identity{Name: name}] = true
	}
	return set
}

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if e := infer.AsError(err); e == nil || e.Code != code || e.Message != text {
		t.Errorf("got %v (%T), want %v: %q", err, err, code, text)
	}
}
