package catalog

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestForgetKeepsUsedModels checks which models are idle and forgotten. Each model has one
// version or none.
func TestForgetKeepsUsedModels(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *model)
		want   bool // the model is idle and forgotten
	}{
		{"never loaded", func(m *model) { clear(m.versions) }, true},
		{"unloaded", func(*model) {}, true},
		{"without a version", func(m *model) { clear(m.versions); m.attempted = true }, false},
		{"wanted", func(m *model) { m.wanted = &Source{} }, false},
		{"served", func(m *model) { m.served = &Source{} }, false},
		{"invalid", func(m *model) { m.invalid = infer.Errorf(infer.Internal, "no") }, false},
		{"failed", func(m *model) { m.versions[1].reason = reason{"Internal: no", "Internal: no"} }, false},
		{"loading", func(m *model) { m.versions[1].state = Loading }, false},
		{"ending", func(m *model) { m.versions[1].state = Unloading }, false},
	} {
		k := graphOf(t, false, "m UNAVAILABLE")
		id := repository.Identity{Name: "m"}
		m := k.models[id]
		m.wanted, m.versions[1].reason = nil, unloaded
		c.change(m)
		if got := len(k.Idle()) == 1; got != c.want {
			t.Errorf("%s: it is idle: %v, want %v", c.name, got, c.want)
		}
		k.Forget([]repository.Identity{id, {Name: "unknown"}})
		if got := !k.Knows("m", infer.LatestVersion); got != c.want {
			t.Errorf("%s: it is forgotten: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestEndBehindForget checks that the end of a replaced version does not add its forgotten model to
// the catalog again.
func TestEndBehindForget(t *testing.T) {
	k := graphOf(t, false)
	k.Ended(repository.Identity{Name: "m"}, 1, nil)
	if k.Knows("m", infer.LatestVersion) {
		t.Error("the catalog knows a model that has ended")
	}
}

// TestChangedImportsReloadTheirVersion checks an invariant of planChange: a version whose imports
// have changed is loaded, although the others only get other instances.
func TestChangedImportsReloadTheirVersion(t *testing.T) {
	source := func(instances int32) *Source {
		config := &kserve.ModelConfig{Name: "m", InstanceGroup: []*kserve.ModelInstanceGroup{{Count: instances}}}
		return &Source{Description: &repository.Description{Name: "m", Config: config, Versions: []int64{1, 2}}}
	}
	got := planChange(source(1), source(2), []int64{1, 2}, []int64{2})
	if !slices.Equal(got.exchange, []int64{1}) || !slices.Equal(got.load, []int64{2}) || got.keep != nil || got.leave != nil {
		t.Errorf("got %+v, want version 1 exchanged and version 2 loaded", got)
	}
}
