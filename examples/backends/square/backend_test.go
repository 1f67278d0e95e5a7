package square_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/square"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, square.New,
		conformance.Model{Directory: "../../backend_models/square_int32"},
	)
}
