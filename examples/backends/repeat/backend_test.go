package repeat_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/repeat"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, repeat.New,
		conformance.Model{Directory: "../../backend_models/repeat_int32"},
	)
}
