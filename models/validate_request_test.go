package models

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TestRequestsWithoutInputs: a model whose inputs are all optional may be asked
// without any, unless it has a batch dimension, which nothing would tell then.
func TestRequestsWithoutInputs(t *testing.T) {
	config := &kserve.ModelConfig{
		Input: []*kserve.ModelInput{{Name: "IN", DataType: kserve.DataType_TYPE_FP32, Dims: []int64{-1}, Optional: true}},
	}
	for _, test := range []struct {
		batch int32
		want  string
	}{
		{0, ""},
		{8, "[request id: r] out of bounds index 0: request has 0 inputs"},
	} {
		config.MaxBatchSize = test.batch
		err := newRequestSpec(&Info{Name: "m", Config: config}).validate(&infer.Request{ID: "r"})
		if test.want == "" {
			if err != nil {
				t.Errorf("max_batch_size %d: got %q, want no error", test.batch, err)
			}
			continue
		}
		var refusal *backendRefusal
		if !errors.As(err, &refusal) || refusal.err.Code != infer.InvalidArg || refusal.Error() != test.want {
			t.Errorf("max_batch_size %d: got %v, want the refusal %q", test.batch, err, test.want)
		}
	}
}
