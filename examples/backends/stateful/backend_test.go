package stateful_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/stateful"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, stateful.New,
		conformance.Model{Directory: "../../backend_models/stateful_cell"},
	)
}
