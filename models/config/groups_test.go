package config_test

import (
	"fmt"
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
