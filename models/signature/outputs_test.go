package signature_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/signature"
)

func TestOddOutputsAreFound(t *testing.T) {
	outputs := `output { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] } output { name: "B" data_type: TYPE_STRING dims: [ 1 ] }
		output { name: "R" data_type: TYPE_FP32 dims: [ 1 ] reshape { } }`
	tensor := func(name string, dataType infer.DataType, shape ...int64) infer.Tensor {
		return infer.Tensor{Name: name, DataType: dataType, Shape: shape}
	}
	for _, c := range []struct {
		name   string
		config string
		output infer.Tensor
		want   string // "" if it matches the config
	}{
		{"any size", "", tensor("A", infer.FP32, 7, 2), ""},
		{"strings", "", tensor("B", infer.Bytes, 1), ""},
		{"reshape, as the model gives it", "", tensor("R", infer.FP32), ""},
		{"batch", "max_batch_size: 4", tensor("A", infer.FP32, 1, 7, 2), ""},
		{"unknown", "", tensor("C", infer.FP32, 7, 2), "output 'C' is not in the configuration of model 'm', whose outputs are 'A', 'B', 'R'"},
		{"type", "", tensor("A", infer.FP64, 7, 2), "output 'A' of model 'm' is FP64 with shape [7,2], want FP32 with dims [-1,2], as its configuration says"},
		{"size", "", tensor("A", infer.FP32, 7, 3), "output 'A' of model 'm' is FP32 with shape [7,3], want FP32 with dims [-1,2], as its configuration says"},
		{"rank", "", tensor("A", infer.FP32, 2), "output 'A' of model 'm' is FP32 with shape [2], want FP32 with dims [-1,2], as its configuration says"},
		{"no batch", "max_batch_size: 4", tensor("A", infer.FP32, 7, 2), "output 'A' of model 'm' is FP32 with shape [7,2], want FP32 with dims [-1,2] after the batch dimension, as its configuration says"},
		{"scalar", "max_batch_size: 4", tensor("B", infer.Bytes), "output 'B' of model 'm' is BYTES with shape [], want BYTES with dims [1] after the batch dimension, as its configuration says"},
	} {
		parsed, err := config.ParseText("p", []byte(outputs+c.config))
		if err != nil {
			t.Fatal(err)
		}
		s := signature.New("m", parsed)
		r := &infer.Response{Outputs: []infer.Tensor{tensor("B", infer.Bytes, 1), c.output}}
		if parsed.GetMaxBatchSize() > 0 {
			r.Outputs[0].Shape = []int64{1, 1}
		}
		at := s.OddOutput(r, 0)
		got := ""
		if at >= 0 {
			got = s.Oddity(&r.Outputs[at])
		}
		if got != c.want || at == 0 {
			t.Errorf("%s: got %q at %d, want %q", c.name, got, at, c.want)
		}
		if at >= 0 && s.OddOutput(r, at+1) != -1 {
			t.Errorf("%s: an output behind the last one is odd", c.name)
		}
		if n := testing.AllocsPerRun(10, func() { s.OddOutput(r, 0) }); n != 0 {
			t.Errorf("%s: OddOutput takes memory %v times, want none", c.name, n)
		}
	}
}
