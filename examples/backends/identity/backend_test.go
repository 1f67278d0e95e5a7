package identity_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/identity"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, identity.New,
		conformance.Model{Directory: "../../backend_models/identity"},
	)
}
