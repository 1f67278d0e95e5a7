package recommended_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/recommended"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, recommended.New,
		conformance.Model{Directory: "../../backend_models/recommended_batching"},
	)
}
