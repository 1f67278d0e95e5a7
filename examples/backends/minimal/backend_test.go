package minimal_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/minimal"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, minimal.New,
		conformance.Model{Directory: "../../backend_models/batching"},
		conformance.Model{Directory: "../../backend_models/nonbatching"},
	)
}
