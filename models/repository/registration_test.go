package repository_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
)

func TestRegisteredRepositoriesHaveNamespaces(t *testing.T) {
	r, first, second := repository.Layout(t, repository.Options{Namespacing: true})
	repository.WantStatus(t, r.Register(first, "dir", "shown"), "")
	repository.WantStatus(t, r.Register(second, "dir", "other"), "")
	want := fmt.Sprint([]repository.Identity{{first, "part"}, {first, "shown"}, {second, "other"}, {r.Namespaces()[0], "part"}})
	if ids, rejected, err := r.Scan(); fmt.Sprint(ids) != want || len(rejected) > 0 || err != nil {
		t.Errorf("got %v, %v, %v, want %s", ids, rejected, err, want)
	}
	f, err := r.Open(repository.Identity{second, "other"})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestRegistrationsAreRefused(t *testing.T) {
	r, first, second := repository.Layout(t, repository.Options{})
	repository.WantStatus(t, r.Register(first, "dir", "shown"), "")
	for _, c := range []struct{ path, name, want string }{
		{first, "new", "Already exists: model repository '" + first + "' has already been registered"},
		{first + "/", "new", "Already exists: model repository '" + first + "/' has already been registered"},
		{r.Namespaces()[0], "new", "Already exists: model repository '" + r.Namespaces()[0] + "' has already been registered"},
		{second, "shown", "Already exists: failed to register 'shown', there is a conflicting mapping for 'shown'"},
		{second + "/none", "new", "Invalid argument: failed to register '" + second + "/none', repository not found"},
		{second + "/dir/1/model.py", "new", "Invalid argument: failed to register '" + second + "/dir/1/model.py', repository not found"},
		{"", "new", "Invalid argument: failed to register '', repository not found"},
	} {
		repository.WantStatus(t, r.Register(c.path, "dir", c.name), c.want)
	}
	repository.WantStatus(t, r.Unregister(second), "Invalid argument: failed to unregister '"+second+"', repository not found")
	own := r.Namespaces()[0]
	repository.WantStatus(t, r.Unregister(own), "Invalid argument: failed to unregister '"+own+"', repository not found")
	repository.WantStatus(t, r.Unregister(first), "")
	repository.WantStatus(t, r.Unregister(first), "Invalid argument: failed to unregister '"+first+"', repository not found")
	repository.WantStatus(t, r.Register(first, "", "empty"), "")
	if _, err := r.Open(repository.Identity{Name: "empty"}); err == nil {
		t.Error("a model without a directory was opened")
	}
}

// TestTheRegisteredNameIsThatOfTheConfig checks that a registered name overrides the name in the
// config file.
func TestTheRegisteredNameIsThatOfTheConfig(t *testing.T) {
	r, first, _ := repository.Layout(t, repository.Options{})
	repository.WantStatus(t, r.Register(first, "dir", "shown"), "")
	d, _, err := r.Read(repository.Identity{Name: "shown"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "shown" || d.Config.GetName() != "shown" || d.Directory != first+"/dir" {
		t.Errorf("got %q with config %q in %s, want shown in %s/dir", d.Name, d.Config.GetName(), d.Directory, first)
	}
}

// TestFoldersOutliveTheirRegistration checks that a model that is open can still be read after its
// repository is unregistered.
func TestFoldersOutliveTheirRegistration(t *testing.T) {
	r, first, _ := repository.Layout(t, repository.Options{})
	repository.WantStatus(t, r.Register(first, "dir", "shown"), "")
	f, err := r.Open(repository.Identity{Name: "shown"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	repository.WantStatus(t, r.Unregister(first), "")
	if _, err := f.Read("1/model.py"); err != nil {
		t.Errorf("got error %v, want the file", err)
	}
}

// TestRegistrationsStorm registers and unregisters repositories while others read. The only error
// that a reader may get is that the model is not found.
func TestRegistrationsStorm(t *testing.T) {
	r, first, second := repository.Layout(t, repository.Options{})
	var writers, readers sync.WaitGroup
	over := make(chan struct{}) // closed when the writers have ended
	for i, path := range []string{first, second} {
		writers.Go(func() {
			for range 300 {
				repository.WantStatus(t, r.Register(path, "dir", fmt.Sprint("m", i)), "")
				repository.WantStatus(t, r.Unregister(path), "")
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
				_, _, err := r.Read(repository.Identity{Name: "m1"}, nil)
				var place *repository.LookupError
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
