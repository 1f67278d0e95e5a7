package repository

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// layout has a repository of the operator's, and two that can be registered.
func layout(t *testing.T, options Options) (r *Roots, first, second string) {
	t.Helper()
	root := t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{
		"own/shown/1/": "", "own/part/1/": "",
		"a/dir/1/model.py": "", "a/dir/config.pbtxt": `name: "third"`, "a/part/1/": "", "a/shown/1/": "",
		"b/dir/1/model.py": "",
	})
	r, err := Open([]string{filepath.Join(root, "own")}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, filepath.Join(root, "a"), filepath.Join(root, "b")
}

func wantStatus(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = infer.AsError(err).Status()
	}
	if got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
}

func TestRegisteredRepositoriesAreScannedAndOpened(t *testing.T) {
	r, first, second := layout(t, Options{})
	wantStatus(t, r.Register(first, "dir", "shown"), "")
	wantStatus(t, r.Register(second, "dir", "other"), "")

	ids, rejected, err := r.Scan()
	if got := fmt.Sprint(ids, rejected, err); got != "[other part shown] map[part:model appears in two or more repositories] <nil>" {
		t.Errorf("got %s, want three models, of which part is twice", got)
	}
	for name, want := range map[string]string{"shown": first + "/dir", "other": second + "/dir", "dir": "", "part": ""} {
		f, err := r.Open(Identity{Name: name})
		if err != nil {
			var place *LookupError
			if want != "" || !errors.As(err, &place) {
				t.Errorf("model %s: got error %v, want directory %q", name, err, want)
			}
			continue
		}
		if f.path != want {
			t.Errorf("model %s: got directory %s, want %s", name, f.path, want)
		}
		f.Close()
	}
	if got := fmt.Sprint(r.Find("shown"), r.Find("dir"), r.Find("part")); got != "[shown] [] [part]" {
		t.Errorf("found %s", got)
	}

	wantStatus(t, r.Unregister(first), "")
	wantStatus(t, r.Unregister(second), "")
	if ids, _, _ := r.Scan(); fmt.Sprint(ids) != "[part shown]" {
		t.Errorf("got %v after unregistering, want the models of the operator's repository", ids)
	}
}

func TestRegisteredRepositoriesHaveNamespaces(t *testing.T) {
	r, first, second := layout(t, Options{Namespacing: true})
	wantStatus(t, r.Register(first, "dir", "shown"), "")
	wantStatus(t, r.Register(second, "dir", "other"), "")
	want := fmt.Sprint([]Identity{{first, "part"}, {first, "shown"}, {second, "other"}, {r.Namespaces()[0], "part"}})
	if ids, rejected, err := r.Scan(); fmt.Sprint(ids) != want || len(rejected) > 0 || err != nil {
		t.Errorf("got %v, %v, %v, want %s", ids, rejected, err, want)
	}
	f, err := r.Open(Identity{second, "other"})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestRegistrationsAreRefused(t *testing.T) {
	r, first, second := layout(t, Options{})
	wantStatus(t, r.Register(first, "dir", "shown"), "")
	for _, c := range []struct{ path, name, want string }{
		{first, "new", "Already exists: model repository '" + first + "' has already been registered"},
		{first + "/", "new", "Already exists: model repository '" + first + "/' has already been registered"},
		{r.Namespaces()[0], "new", "Already exists: model repository '" + r.Namespaces()[0] + "' has already been registered"},
		{second, "shown", "Already exists: failed to register 'shown', there is a conflicting mapping for 'shown'"},
		{second + "/none", "new", "Invalid argument: failed to register '" + second + "/none', repository not found"},
		{second + "/dir/1/model.py", "new", "Invalid argument: failed to register '" + second + "/dir/1/model.py', repository not found"},
		{"", "new", "Invalid argument: failed to register '', repository not found"},
	} {
		wantStatus(t, r.Register(c.path, "dir", c.name), c.want)
	}
	wantStatus(t, r.Unregister(second), "Invalid argument: failed to unregister '"+second+"', repository not found")
	own := r.Namespaces()[0]
	wantStatus(t, r.Unregister(own), "Invalid argument: failed to unregister '"+own+"', repository not found")
	wantStatus(t, r.Unregister(first), "")
	wantStatus(t, r.Unregister(first), "Invalid argument: failed to unregister '"+first+"', repository not found")
	wantStatus(t, r.Register(first, "", "empty"), "")
	if _, err := r.Open(Identity{Name: "empty"}); err == nil {
		t.Error("a model without a directory was opened")
	}
}

// TestTheRegisteredNameIsThatOfTheConfig, whatever the file says.
func TestTheRegisteredNameIsThatOfTheConfig(t *testing.T) {
	r, first, _ := layout(t, Options{})
	wantStatus(t, r.Register(first, "dir", "shown"), "")
	d, _, err := r.Read(Identity{Name: "shown"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "shown" || d.Config.GetName() != "shown" || d.Directory != first+"/dir" {
		t.Errorf("got %q with config %q in %s, want shown in %s/dir", d.Name, d.Config.GetName(), d.Directory, first)
	}
}

// TestFoldersOutliveTheirRegistration: a model that is being read is read to its end.
func TestFoldersOutliveTheirRegistration(t *testing.T) {
	r, first, _ := layout(t, Options{})
	wantStatus(t, r.Register(first, "dir", "shown"), "")
	f, err := r.Open(Identity{Name: "shown"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wantStatus(t, r.Unregister(first), "")
	if _, err := f.Read("1/model.py"); err != nil {
		t.Errorf("got error %v, want the file", err)
	}
}

// TestRegistrationsStorm has repositories come and go while others read. No reader fails but by
// not finding the model.
func TestRegistrationsStorm(t *testing.T) {
	r, first, second := layout(t, Options{})
	var writers, readers sync.WaitGroup
	over := make(chan struct{}) // closed when the writers have ended
	for i, path := range []string{first, second} {
		writers.Go(func() {
			for range 300 {
				wantStatus(t, r.Register(path, "dir", fmt.Sprint("m", i)), "")
				wantStatus(t, r.Unregister(path), "")
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, _, err := r.Scan(); err != nil {
					t.Errorf("Scan: %v", err)
				}
				r.Find("m0")
				_, _, err := r.Read(Identity{Name: "m1"}, nil)
				var place *LookupError
				if err != nil && !errors.As(err, &place) {
					t.Errorf("Read: %v", err)
				}
			}
		})
	}
	writers.Wait()
	close(over)
	readers.Wait()
}
