package models

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
)

// overview returns the models as operators see them.
func overview(r *Registry) string {
	var list []string
	for _, v := range r.Overview() {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", v.Name, v.Version, v.State, v.Reason)))
	}
	return strings.Join(list, "\n")
}

// TestOperatorsSeeWhyModelsHaveNoVersion checks that the overview gives the reason for a broken
// config, a model without versions and an ensemble with a missing step until they are fixed, and
// that the index does not change.
func TestOperatorsSeeWhyModelsHaveNoVersion(t *testing.T) {
	p := polling(t, WriteModels(t, map[string][]int64{"good": {1}, "enum": {1}, "empty": {}}))
	p.write(0, "enum/config.pbtxt", "backend: \"fake\"\ninput { name: \"A\" data_type: TYPE_BYTES }\n")
	p.write(0, "stepless/config.pbtxt", strings.ReplaceAll(chainConfig, "first", "absent"))
	p.write(0, "stepless/1/keep", "")
	if err := p.Start(t.Context()); err == nil {
		t.Error("the start succeeded")
	}
	const index = "enum; good 1 READY; stepless"
	wantReasons := func(when string, wants ...string) {
		t.Helper()
		got := strings.Split(overview(p.Registry), "\n")
		if len(got) != len(wants) {
			t.Errorf("%s: got %q, want %d rows", when, got, len(wants))
			return
		}
		for i, want := range wants {
			model, reason, _ := strings.Cut(want, ": ")
			if !strings.HasPrefix(got[i], model) || !strings.Contains(got[i], reason) {
				t.Errorf("%s: got %q, want %q with %q in it", when, got[i], model, reason)
			}
		}
	}
	p.wantStates(index)
	wantReasons("after the start", "empty 0 UNAVAILABLE: at least one version must be available", "enum 0 UNAVAILABLE: enum/config.pbtxt:2:",
		"good 1 READY", "stepless 0 UNAVAILABLE: absent")

	p.write(0, "enum/config.pbtxt", FakeConfig)
	p.remove(0, "stepless")
	p.look()
	p.wantStates("enum 1 READY; good 1 READY")
	wantReasons("after a mend", "empty 0 UNAVAILABLE: at least one version must be available", "enum 1 READY", "good 1 READY")
}

// TestTroublesOfModelsThatAreGoneEnd notes models whose directories disappear, and checks that
// only the others' reasons are left when very many have been noted.
func TestTroublesOfModelsThatAreGoneEnd(t *testing.T) {
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"a": {1}, "b": {1}}), NewFakeBackend(), nil)
	troubles := &r.troubles
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
