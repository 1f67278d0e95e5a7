package recommended

import (
	"testing"

	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, New,
		conformance.Model{Directory: "../../backend_models/recommended_batching"},
	)
}
