package server

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

func TestClassifyRanksByValue(t *testing.T) {
	f32 := func(values ...float32) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tt := range []struct {
		name    string
		out     infer.Tensor
		k       int
		batched bool
		shape   []int64
		want    []string
	}{
		{"ties by index", infer.Tensor{DataType: infer.FP32, Shape: []int64{4}, Data: f32(1, 2, 2, 0.5)}, 3, false, []int64{3}, []string{"2.000000:1:b", "2.000000:2", "1.000000:0:a"}},
		{"k is too large", infer.Tensor{DataType: infer.FP32, Shape: []int64{2}, Data: f32(1, 2)}, 9, false, []int64{2}, []string{"2.000000:1:b", "1.000000:0:a"}},
		{"NaN is last", infer.Tensor{DataType: infer.FP32, Shape: []int64{3}, Data: f32(nan, -inf, inf)}, 3, false, []int64{3}, []string{"inf:2", "-inf:1:b", "nan:0:a"}},
		{"batch of flattened items", infer.Tensor{DataType: infer.Int8, Shape: []int64{2, 2, 1}, Data: []byte{1, 255, 3, 4}}, 1, true, []int64{2, 1}, []string{"1:0:a", "4:1:b"}},
		{"unsigned", infer.Tensor{DataType: infer.Uint64, Shape: []int64{1}, Data: slices.Repeat([]byte{255}, 8)}, 1, false, []int64{1}, []string{"18446744073709551615:0:a"}},
		{"nothing", infer.Tensor{DataType: infer.FP64, Shape: []int64{0, 3}}, 2, true, []int64{0, 0}, nil},
	} {
		got, err := Classify(nil, &tt.out, tt.k, tt.batched, []string{"a", "b", ""})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var elements []string
		for data := got.Data; len(data) > 0; {
			e, ok := element(data)
			if !ok {
				t.Fatalf("%s: element %d is malformed", tt.name, len(elements))
			}
			elements, data = append(elements, string(e)), data[4+len(e):]
		}
		if got.DataType != infer.Bytes || !slices.Equal(got.Shape, tt.shape) || !slices.Equal(elements, tt.want) {
			t.Errorf("%s: got %v %q, want %v %q", tt.name, got.Shape, elements, tt.shape, tt.want)
		}
	}
	for _, d := range []infer.DataType{infer.Bool, infer.FP16, infer.BF16, infer.Bytes} {
		_, err := Classify(nil, &infer.Tensor{DataType: d}, 1, false, nil)
		if want := "class result not available for output due to unsupported type '" + d.String() + "'"; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", d, err, want)
		}
	}
	large := infer.Tensor{DataType: infer.Uint8, Shape: []int64{maxClassified + 1}, Data: make([]byte, maxClassified+1)}
	if _, err := Classify(nil, &large, 1, false, nil); err == nil || err.Error() != "classification output tensor too large" {
		t.Errorf("large: got %v", err)
	}
}

// TestTopAgreesWithSorting checks that selecting the largest values gives the same result as
// sorting all values.
func TestTopAgreesWithSorting(t *testing.T) {
	values := make([]float64, 500)
	for i := range values {
		values[i] = float64(i * 7919 % 101)
		if i%50 == 0 {
			values[i] = math.NaN()
		}
	}
	all := top(values, len(values))
	for k := 1; k <= insertionLimit; k++ {
		if got := top(values, k); !slices.Equal(got, all[:k]) {
			t.Fatalf("top %d: got %v, want %v", k, got, all[:k])
		}
	}
}

// element returns the first element of a BYTES tensor's data.
func element(data []byte) (element []byte, ok bool) {
	if len(data) < 4 {
		return nil, false
	}
	n := binary.LittleEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-4) {
		return nil, false
	}
	return data[4 : 4+n], true
}

// TestClassesTakeNoMoreThanTheirCost checks that ClassesCost is an upper bound even for the values
// with the longest texts.
func TestClassesTakeNoMoreThanTheirCost(t *testing.T) {
	labels := []string{strings.Repeat("l", 1000), "b"}
	for _, d := range []infer.DataType{infer.FP32, infer.FP64, infer.Int64, infer.Uint64, infer.Int8} {
		bits := map[infer.DataType]uint64{infer.FP32: uint64(math.Float32bits(-math.MaxFloat32)), infer.FP64: math.Float64bits(-math.MaxFloat64)}[d]
		if bits == 0 {
			bits = 1 << (8*d.Size() - 1)
		}
		var data []byte
		for range 1000 {
			data = append(data, binary.LittleEndian.AppendUint64(nil, bits)[:d.Size()]...)
		}
		for _, batched := range []bool{false, true} {
			out := infer.Tensor{DataType: d, Shape: []int64{10, 100}, Data: data}
			got, err := Classify(nil, &out, 1000, batched, labels)
			if cost := ClassesCost(&out, 1000, batched, labels); err != nil || int64(cap(got.Data)) > cost {
				t.Errorf("%s, batched %v: %d bytes and error %v, cost %d", d, batched, cap(got.Data), err, cost)
			}
		}
	}
}
