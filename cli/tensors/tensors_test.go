package tensors_test

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/cli/tensors"
	"github.com/nereid-serving/nereid/infer"
)

// TestValuesOfJSONBecomeElements checks the bytes of JSON arrays of several data types, and that
// invalid arrays are rejected.
func TestValuesOfJSONBecomeElements(t *testing.T) {
	for _, c := range []struct {
		datatype infer.DataType
		shape    []int64
		text     string
		want     []byte // nil: rejected
	}{
		{infer.Int16, []int64{2}, "[[1], [-2]]", []byte{1, 0, 0xfe, 0xff}},
		{infer.Uint64, []int64{1}, "[18446744073709551615]", []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		{infer.FP32, []int64{1}, "[1.5]", []byte{0, 0, 0xc0, 0x3f}},
		{infer.Bool, []int64{2}, "[true, false]", []byte{1, 0}},
		{infer.Bytes, []int64{2}, `["a", ""]`, []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}},
		{infer.Int16, []int64{3}, "[1, 2]", nil},
		{infer.Bytes, []int64{1}, "[1]", nil},
		{infer.FP32, []int64{1}, `["x"]`, nil},
		{infer.FP32, []int64{1}, "[1", nil},
	} {
		x := &infer.Tensor{DataType: c.datatype, Shape: c.shape}
		err := tensors.Read(x, []byte(c.text))
		if err == nil {
			err = tensors.Check(x)
		}
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(x.Data, c.want) {
			t.Errorf("%s of %s: got %v, %v, want %v", c.text, c.datatype, x.Data, err, c.want)
		}
	}
}
