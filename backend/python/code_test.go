package python_test

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/kserve"
)

// TestFaultsReadAsClientsExpect checks that faults have Triton's texts.
func TestFaultsReadAsClientsExpect(t *testing.T) {
	for fault, want := range map[process.Fault]string{
		process.ProcessLost:       "Stub process 's' is not healthy.",
		process.ReadyLate:         "Timed out waiting for user-defined is_ready() response",
		process.SharedReadyLate:   "Timed out waiting for in-flight is_ready() response",
		process.ReadyLost:         "Stub process is not healthy while waiting for user-defined is_ready() response",
		process.NotReady:          "Model 's' is not ready (user-defined check failed).",
		process.OneResponseWanted: "Model s is using the decoupled. The current BLS request call doesn't support models using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'",
		process.LeastMemory:       "Each Python backend model instance requires at least 1 MB of shared memory.",
	} {
		if got := (&python.Code{}).Text(fault, "s"); got != want {
			t.Errorf("fault %d: got %q, want %q", fault, got, want)
		}
	}
}

// TestWrongParametersFailTheLoad checks that wrong parameters are rejected before a process starts
// with them.
func TestWrongParametersFailTheLoad(t *testing.T) {
	for value, want := range map[string]string{
		"copy": "", "error": "", "maybe": `parameter 'AS_NUMPY_ON_GPU' of model 'm' is "maybe", want copy or error`,
		"": `parameter 'AS_NUMPY_ON_GPU' of model 'm' is "", want copy or error`,
	} {
		c := python.NewCode()
		err := c.Configure(&kserve.ModelConfig{Name: "m", Parameters: map[string]*kserve.ModelParameter{"AS_NUMPY_ON_GPU": {StringValue: value}}})
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: got error %v, want %q", value, err, want)
		}
	}
}
