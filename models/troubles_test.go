package models_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models"
)

// overview returns the models as operators see them.
func overview(r *models.Registry) string {
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
	p := polling(t, writeModels(t, map[string][]int64{"good": {1}, "enum": {1}, "empty": {}}))
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

	p.write(0, "enum/config.pbtxt", fakeConfig)
	p.remove(0, "stepless")
	p.look()
	p.wantStates("enum 1 READY; good 1 READY")
	wantReasons("after a mend", "empty 0 UNAVAILABLE: at least one version must be available", "enum 1 READY", "good 1 READY")
}
