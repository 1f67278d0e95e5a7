package minimal

import (
	"testing"

	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, New,
		conformance.Model{Directory: "../../models/backend_examples/batching"},
		conformance.Model{Directory: "../../models/backend_examples/nonbatching"},
	)
}
