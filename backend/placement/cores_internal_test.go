package placement

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestHostPoliciesChooseCores(t *testing.T) {
	was := nodes
	t.Cleanup(func() { nodes = was })
	nodes = t.TempDir()
	testkit.WriteFiles(t, nodes, map[string]string{"node1/cpulist": "2-4,7\n"})
	const format = "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got "
	for name, test := range map[string]struct {
		settings map[string]string
		want     []int
		refusal  string
	}{
		"nothing is said":          {nil, nil, ""},
		"a range":                  {map[string]string{"cpu-cores": "1-3"}, []int{1, 2, 3}, ""},
		"one core":                 {map[string]string{"cpu-cores": "5-5"}, []int{5}, ""},
		"a word":                   {map[string]string{"cpu-cores": "x"}, nil, format + "x"},
		"a number":                 {map[string]string{"cpu-cores": "1"}, nil, format + "1"},
		"upside down":              {map[string]string{"cpu-cores": "3-1"}, nil, format + "3-1"},
		"a node":                   {map[string]string{"numa-node": "1"}, []int{2, 3, 4, 7}, ""},
		"a node and cores":         {map[string]string{"numa-node": "1", "cpu-cores": "0-1"}, []int{0, 1}, ""},
		"a node that is not there": {map[string]string{"numa-node": "9"}, nil, "Unable to set NUMA memory policy: Invalid argument"},
		"a node that is no number": {map[string]string{"numa-node": "-"}, nil, "Unable to set NUMA memory policy: Invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := HostPolicies{"p": test.settings}.Of("p")
			text := ""
			if err != nil {
				text = infer.AsError(err).Message
			}
			if !slices.Equal(got, test.want) || text != test.refusal {
				t.Errorf("got %v, %q; want %v, %q", got, text, test.want, test.refusal)
			}
		})
	}
	if cores := parseRange("0-5000"); len(cores) != maxCores {
		t.Errorf("a range beyond the kernel's has %d cores, want %d", len(cores), maxCores)
	}
	err := HostPolicies{"p": {"foo": "bar"}}.Validate()
	if want := "Unsupported host policy setting 'foo' is specified, supported settings are 'numa-node', 'cpu-cores'"; err == nil || infer.AsError(err).Message != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
