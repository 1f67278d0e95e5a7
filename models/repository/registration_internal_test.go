package repository

import (
	"errors"
	"fmt"
	"testing"
)

func TestRegisteredRepositoriesAreScannedAndOpened(t *testing.T) {
	r, first, second := Layout(t, Options{})
	WantStatus(t, r.Register(first, "dir", "shown"), "")
	WantStatus(t, r.Register(second, "dir", "other"), "")

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

	WantStatus(t, r.Unregister(first), "")
	WantStatus(t, r.Unregister(second), "")
	if ids, _, _ := r.Scan(); fmt.Sprint(ids) != "[part shown]" {
		t.Errorf("got %v after unregistering, want the models of the operator's repository", ids)
	}
}
