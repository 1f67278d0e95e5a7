package placement_test

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/kserve"
)

func TestPolicyNameFollowsTheGroup(t *testing.T) {
	for want, group := range map[string]*kserve.ModelInstanceGroup{
		"cpu":   {Kind: kserve.ModelInstanceGroup_KIND_CPU},
		"model": {Kind: kserve.ModelInstanceGroup_KIND_MODEL},
		"gpu_2": {Kind: kserve.ModelInstanceGroup_KIND_GPU},
		"mine":  {Kind: kserve.ModelInstanceGroup_KIND_GPU, HostPolicy: "mine"},
	} {
		if got := placement.PolicyName(group, "2"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestPoliciesAsJSON checks the form in which Triton passes a policy to backends, defined or not.
func TestPoliciesAsJSON(t *testing.T) {
	policies := placement.HostPolicies{"p": {"numa-node": "0", "cpu-cores": "0-3"}}
	for policy, want := range map[string]string{"p": `{"p":{"cpu-cores":"0-3","numa-node":"0"}}`, "cpu": `{"cpu":{}}`} {
		if got := policies.JSON(policy); got != want {
			t.Errorf("%s: got %s, want %s", policy, got, want)
		}
	}
}
