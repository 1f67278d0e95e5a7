package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/rs/zerolog"
)

// instancesOf returns the instances of groups such as "a2 b1p": name, count, and p for passive.
func instancesOf(t *testing.T, groups string) []*Instance {
	t.Helper()
	m := &Model{supervisor: &Supervisor{limits: Limits{}.WithDefaults()}, log: zerolog.Nop()}
	config := &kserve.ModelConfig{}
	for _, group := range strings.Fields(groups) {
		config.InstanceGroup = append(config.InstanceGroup, &kserve.ModelInstanceGroup{
			Name: group[:1], Count: int32(group[1] - '0'), Kind: kserve.ModelInstanceGroup_KIND_CPU, Passive: len(group) > 2,
		})
	}
	instances, err := m.makeInstances(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return instances
}

// TestMatchKeepsLikeInstances checks which instances stay when groups change.
func TestMatchKeepsLikeInstances(t *testing.T) {
	for _, test := range []struct{ before, after, kept, surplus string }{
		{"a2", "a2", "a_0 a_1", ""},
		{"a2", "a3", "a_0 a_1 -", ""},
		{"a3", "a1", "a_0", "a_1 a_2"},
		{"a2", "b2", "a_0 a_1", ""}, // different name, otherwise alike
		{"a1 b1", "b1", "b_0", "a_0"},
		{"a1 b1", "b2", "b_0 a_0", ""},
		{"a2", "a2p", "- -", "a_0 a_1"},
		{"a2 b1p", "a1 b2p", "a_0 b_0 -", "a_1"},
		{"a1", "b1 a1", "- a_0", ""},
	} {
		t.Run(test.before+" to "+test.after, func(t *testing.T) {
			kept, surplus := match(instancesOf(t, test.before), instancesOf(t, test.after))
			if got := namesOf(kept); got != test.kept {
				t.Errorf("kept are %q, want %q", got, test.kept)
			}
			if got := namesOf(surplus); got != test.surplus {
				t.Errorf("surplus are %q, want %q", got, test.surplus)
			}
		})
	}
}

func namesOf(list []*Instance) string {
	var names []string
	for _, in := range list {
		if in == nil {
			names = append(names, "-")
		} else {
			names = append(names, in.name)
		}
	}
	return strings.Join(names, " ")
}

// TestInstancesAreNumberedWithinTheirGroup checks instance names: the group's name, which
// normalisation sets, and a number within the group.
func TestInstancesAreNumberedWithinTheirGroup(t *testing.T) {
	if got := fmt.Sprint(namesOf(instancesOf(t, "m1 n2"))); got != "m_0 n_0 n_1" {
		t.Errorf("got %q", got)
	}
}

// TestTooManyInstancesAreRefused checks that an excessive count is refused before anything is
// allocated.
func TestTooManyInstancesAreRefused(t *testing.T) {
	m := &Model{supervisor: &Supervisor{limits: Limits{}.WithDefaults()}, log: zerolog.Nop()}
	m.env.Name = "m"
	config := &kserve.ModelConfig{InstanceGroup: []*kserve.ModelInstanceGroup{
		{Name: "a", Count: 5, Kind: kserve.ModelInstanceGroup_KIND_CPU}, {Name: "b", Count: 2_000_000_000, Kind: kserve.ModelInstanceGroup_KIND_CPU},
	}}
	_, err := m.makeInstances(config, nil)
	if want := "instance group b of model m asks for 2000000000 instances, a model has 4096 at most"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
