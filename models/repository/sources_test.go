package repository_test

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestSourcesAlone checks that with SourcesAlone, other files that a model writes into its
// directory are not a change.
func TestSourcesAlone(t *testing.T) {
	root := t.TempDir()
	write := func(name string) {
		t.Helper()
		testkit.WriteFiles(t, root, map[string]string{"m/" + name: name})
	}
	write("1/model.py")
	roots, err := repository.Open([]string{root}, repository.Options{SourcesAlone: true})
	if err != nil {
		t.Fatal(err)
	}
	defer roots.Close()
	look := func() repository.Footprint {
		t.Helper()
		f, err := roots.Footprint(repository.Identity{Name: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	before := look()
	for _, name := range []string{"1/cache.db", "1/cache/x", "state/y", "notes.txt", "1/__pycache__/model.cpython-313.pyc"} {
		write(name)
		if !look().Same(before) {
			t.Errorf("%s: got a change, want none", name)
		}
	}
	for _, name := range []string{"config.pbtxt", "1/util.py", "1/inner/deep.py", "shared/a.py", "2/nothing"} {
		write(name)
		after := look()
		if after.Same(before) {
			t.Errorf("%s: got no change, want one", name)
		}
		before = after
	}
}
