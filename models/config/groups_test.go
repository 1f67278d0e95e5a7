package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// TestGroupsThatABackendPrefers checks that a backend's preferred groups complete a config: as
// whole groups if it has none, else as counts and GPUs for groups of the same kind.
func TestGroupsThatABackendPrefers(t *testing.T) {
	const cpu, gpu, any = kserve.ModelInstanceGroup_KIND_CPU, kserve.ModelInstanceGroup_KIND_GPU, kserve.ModelInstanceGroup_KIND_AUTO
	type group = kserve.ModelInstanceGroup
	preferred := []*group{{Kind: gpu, Count: 2, Gpus: []int32{1, 7}}, {Kind: cpu, Count: 3}}
	for _, test := range []struct {
		name  string
		given []*group
		gpus  []int32
		want  string
	}{
		{"none, without GPUs", nil, nil, "m KIND_CPU 3 []"},
		{"none, with GPUs", nil, []int32{0, 1}, "m KIND_GPU 2 [1]"},
		{"a count is given", []*group{{Kind: cpu, Count: 1}}, nil, "m_0 KIND_CPU 1 []"},
		{"a count is left open", []*group{{Kind: cpu}}, nil, "m_0 KIND_CPU 3 []"},
		{"GPUs are left open", []*group{{Kind: gpu, Count: 1}}, []int32{0, 1}, "m_0 KIND_GPU 1 [1]"},
		{"GPUs are given", []*group{{Kind: gpu, Gpus: []int32{0}}}, []int32{0, 1}, "m_0 KIND_GPU 2 [0]"},
		{"no preferred GPU is there", []*group{{Kind: gpu}}, []int32{0}, "m_0 KIND_GPU 2 [0]"},
		{"any kind", []*group{{Kind: any}}, nil, "m_0 KIND_CPU 3 []"},
		{"another kind", []*group{{Kind: kserve.ModelInstanceGroup_KIND_MODEL}}, nil, "m_0 KIND_MODEL 1 []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			parsed := &kserve.ModelConfig{Name: "m", Backend: "b", InstanceGroup: test.given}
			rules := config.Rules{GPUs: test.gpus, Preferred: func(backend string) []*group {
				if backend != "b" {
					t.Errorf("asked for backend %q", backend)
				}
				return preferred
			}}
			for range 2 { // the second call must change nothing
				rules.AssignGroups(parsed)
				g := parsed.InstanceGroup[0]
				if got := fmt.Sprint(g.Name, " ", g.Kind, " ", g.Count, " ", g.Gpus); got != test.want || len(parsed.InstanceGroup) != 1 {
					t.Errorf("got %s, want %s", got, test.want)
				}
			}
		})
	}
}

// TestShortTextsMakeNothingLarge checks that short configs make neither many or long names of
// groups nor many warnings.
func TestShortTextsMakeNothingLarge(t *testing.T) {
	many := make([]*kserve.ModelInstanceGroup, 4097)
	for i := range many {
		many[i] = &kserve.ModelInstanceGroup{}
	}
	for n, want := range map[int]string{4096: "", 4097: "m has 4097 instance groups, want 4096 at most"} {
		err := config.Rules{}.Fill(&kserve.ModelConfig{Name: "m", Backend: "b", InstanceGroup: many[:n]}, "m", nil)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%d groups: got error %v, want %q", n, err, want)
		}
	}
	for n, want := range map[int]string{4096: "<nil>", 4097: "an instance group of m has a name of 4097 bytes, want 4096 at most"} {
		group := &kserve.ModelInstanceGroup{Name: strings.Repeat("g", n), Count: 4096}
		err := config.Rules{}.Fill(&kserve.ModelConfig{Name: "m", Backend: "b", InstanceGroup: []*kserve.ModelInstanceGroup{group}}, "m", nil)
		if got := fmt.Sprint(err); got != want {
			t.Errorf("a name of %d bytes: got error %s, want %s", n, got, want)
		}
	}
	long := strings.Repeat("m", 4096)
	for n, want := range map[int]string{256: "<nil>", 257: long + " has 257 instance groups, want 256 at most"} {
		err := config.Rules{}.Fill(&kserve.ModelConfig{Name: long, Backend: "b", InstanceGroup: many[:n]}, long, nil)
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%d groups of a model with a long name: got error %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{256: "<nil>", 257: "an instance group of m has 257 resources of the rate limiter, want 256 at most"} {
		resources := make([]*kserve.ModelRateLimiter_Resource, n)
		group := &kserve.ModelInstanceGroup{RateLimiter: &kserve.ModelRateLimiter{Resources: resources}}
		err := config.Rules{}.Fill(&kserve.ModelConfig{Name: "m", Backend: "b", InstanceGroup: []*kserve.ModelInstanceGroup{group}}, "m", nil)
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%d resources: got error %s, want %s", n, got, want)
		}
	}
	specific := &kserve.ModelVersionPolicy_Specific{Versions: []int64{7}}
	for v := range int64(1000) {
		specific.Versions = append(specific.Versions, 1000+v)
	}
	selected, warnings := config.SelectVersions(&kserve.ModelConfig{
		Name: "m", VersionPolicy: &kserve.ModelVersionPolicy{PolicyChoice: &kserve.ModelVersionPolicy_Specific_{Specific: specific}},
	}, []int64{7, 8})
	if last := warnings[len(warnings)-1]; len(selected) != 1 || len(warnings) != 101 || last != "900 more versions are specified for model 'm' whose directories are not present" {
		t.Errorf("got %d selected versions, %d warnings, the last %q", len(selected), len(warnings), last)
	}
}
