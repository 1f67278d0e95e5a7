package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestInstancesOfEachKind checks that a group has count instances on each of its GPUs, and that
// instances are ordered by number first, then by GPU.
func TestInstancesOfEachKind(t *testing.T) {
	config := &kserve.ModelConfig{InstanceGroup: []*kserve.ModelInstanceGroup{
		{Name: "c", Count: 2, Kind: kserve.ModelInstanceGroup_KIND_CPU},
		{Name: "g", Count: 2, Kind: kserve.ModelInstanceGroup_KIND_GPU, Gpus: []int32{0, 3}},
		{Name: "m", Count: 1, Kind: kserve.ModelInstanceGroup_KIND_MODEL},
	}}
	list, err := placement.Of(config, "x", 7)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, fmt.Sprintf("%s %s %s %d %d", p.Name, p.Kind, p.Device, p.Number(), p.GPU()))
	}
	want := "c_0 CPU 0 0 0, c_1 CPU 0 0 0, g_0 GPU 0 0 1, g_0 GPU 3 3 4, g_1 GPU 0 0 1, g_1 GPU 3 3 4, m_0 MODEL 0 0 0"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if _, err := placement.Of(config, "x", 6); err == nil || err.Error() != "instance group m of model x asks for 1 instances, a model has 6 at most" {
		t.Errorf("beyond the limit: got %v", err)
	}
	if _, err := placement.Of(&kserve.ModelConfig{}, "x", 1); err == nil || err.Error() != "must specify one or more 'instance group's for x" {
		t.Errorf("without groups: got %v", err)
	}
}

// placed returns the placements of groups such as "a2 b1p": name, count, and p for passive.
func placed(t *testing.T, groups string) (list []*placement.Placement) {
	t.Helper()
	config := &kserve.ModelConfig{}
	for _, group := range strings.Fields(groups) {
		config.InstanceGroup = append(config.InstanceGroup, &kserve.ModelInstanceGroup{
			Name: group[:1], Count: int32(group[1] - '0'), Kind: kserve.ModelInstanceGroup_KIND_CPU, Passive: len(group) > 2,
		})
	}
	of, err := placement.Of(config, "x", 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range of {
		list = append(list, &of[i])
	}
	return list
}

// TestMatchKeepsLikeInstances checks which instances stay when groups change.
func TestMatchKeepsLikeInstances(t *testing.T) {
	names := func(list []*placement.Placement) string {
		var names []string
		for _, p := range list {
			if p == nil {
				names = append(names, "-")
			} else {
				names = append(names, p.Name)
			}
		}
		return strings.Join(names, " ")
	}
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
			kept, surplus := placement.Match(placed(t, test.before), placed(t, test.after), func(p *placement.Placement) *placement.Placement { return p })
			if got := names(kept); got != test.kept {
				t.Errorf("kept are %q, want %q", got, test.kept)
			}
			if got := names(surplus); got != test.surplus {
				t.Errorf("surplus are %q, want %q", got, test.surplus)
			}
		})
	}
}

// TestDevicesAreKept checks that Match pairs only instances on the same device.
func TestDevicesAreKept(t *testing.T) {
	of := func(name string, gpus ...int32) (list []*placement.Placement) {
		group := &kserve.ModelInstanceGroup{Name: name, Count: 1, Kind: kserve.ModelInstanceGroup_KIND_GPU, Gpus: []int32{0, 1}}
		for _, n := range gpus {
			list = append(list, &placement.Placement{Name: name + "_0", Kind: "GPU", Device: fmt.Sprint(n), Group: group})
		}
		return list
	}
	present := of("a", 0, 1)
	kept, surplus := placement.Match(present, of("b", 1), func(p *placement.Placement) *placement.Placement { return p })
	if kept[0] != present[1] || len(surplus) != 1 || surplus[0] != present[0] {
		t.Errorf("kept is %v and surplus %v, want the instance of device 1 and that of 0", kept, surplus)
	}
}

// TestGroupsAreComparedOnce checks that Match copies each group once, not for each pair of
// instances: a client with a large group would keep a load busy for hours.
func TestGroupsAreComparedOnce(t *testing.T) {
	of := func(policy string) (list []*placement.Placement) {
		group := &kserve.ModelInstanceGroup{Name: "g", Count: 100, HostPolicy: policy, Profile: make([]string, 100)}
		for n := range group.Count {
			list = append(list, &placement.Placement{Name: fmt.Sprintf("g_%d", n), Kind: "CPU", Device: "0", Group: group})
		}
		return list
	}
	present, wanted := of("a"), of("b")
	allocations := testing.AllocsPerRun(1, func() {
		placement.Match(present, wanted, func(p *placement.Placement) *placement.Placement { return p })
	})
	if allocations > 1000 {
		t.Errorf("got %.0f allocations for 100 instances of two groups, want 1000 at most", allocations)
	}
}
