package form_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/page/form"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// heap returns a TensorMemory of the Go heap.
func heap() *form.TensorMemory {
	return &form.TensorMemory{
		Limit:  1 << 20,
		Tensor: func(t *infer.Tensor, n int) error { t.Data = make([]byte, n); return nil },
	}
}

// TestReadMakesTensors checks the tensors that are read from entered values, or the errors.
func TestReadMakesTensors(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      infer.DataType
		shape  string
		values string
		want   string // the tensor as an output shows it, or the error
	}{
		{"nested JSON", infer.Int32, "2, 2", "[[1, -2],\n [3, 4]]", "[2,2] 1  -2\n3  4"},
		{"planes", infer.Uint8, "[2,2,2]", "1 2 3 4 5 6 7 8", "[2,2,2] 1  2\n3  4\n\n5  6\n7  8"},
		{"one fills all", infer.FP32, "2 3", "0.5", "[2,3] 0.5  0.5  0.5\n0.5  0.5  0.5"},
		{"open dimension", infer.Int64, "1,-1", "7 8 9", "[1,3] 7  8  9"},
		{"open dimension of one", infer.Int64, "-1", "7", "[1] 7"},
		{"scalar", infer.FP64, "", "1e300", "[] 1e+300"},
		{"floats", infer.FP32, "4", "nan, inf, -inf, 3", "[4] NaN  +Inf  -Inf  3.0"},
		{"halves", infer.FP16, "3", "0.1 65504 inf", "[3] 0.099975586  65504.0  +Inf"},
		{"brain floats", infer.BF16, "2", "1.0 3.14", "[2] 1.0  3.140625"},
		{"booleans", infer.Bool, "4", "true False 1 0", "[4] true  false  true  false"},
		{"largest", infer.Uint64, "1", "18446744073709551615", "[1] 18446744073709551615"},
		{"one text", infer.Bytes, "1, 1", "a, [b]\r\nc", "[1,1] a, [b]\nc"},
		{"an empty text", infer.Bytes, "1", "", "[1] "},
		{"lines", infer.Bytes, "2", "a b\r\nc\r\n", "[2] a b|c"},
		{"JSON of texts", infer.Bytes, "2,2", `[["a","b"],["\u00e9","]"]]`, "[2,2] a|b|é|]"},
		{"open dimension of texts", infer.Bytes, "-1", "a\nb\nc", "[3] a|b|c"},

		{"too many", infer.Int32, "2", "1 2 3", "input 'IN': shape [2] needs 2 values, but there are 3"},
		{"too few", infer.Int32, "2,2", "1 2 3", "input 'IN': shape [2,2] needs 4 values, but there are 3"},
		{"does not divide", infer.Int32, "2,-1", "1 2 3", "input 'IN': 3 values do not fill a tensor of shape [2,-1]"},
		{"two open", infer.Int32, "-1,-1", "1", "input 'IN': the shape has -1 more than once; only one dimension can be derived from the values"},
		{"no number", infer.Int8, "1", "128", `input 'IN': "128" is not a value of type INT8`},
		{"no half", infer.FP16, "1", "70000", `input 'IN': "70000" is not a value of type FP16`},
		{"a text", infer.FP32, "1", "<b>", `input 'IN': "<b>" is not a value of type FP32`},
		{"shape is text", infer.FP32, "2 x 3", "1", `input 'IN': dimension "x" of the shape: want a whole number, or -1 once`},
		{"huge", infer.FP32, "1000000,1000000", "1", "input 'IN': the tensor has 4000000000000 bytes, at most 1048576 are allowed. --http-max-input-size changes the limit"},
		{"beyond all", infer.FP32, "4611686018427387904,4", "1", "input 'IN': shape [4611686018427387904,4] has more elements than a tensor can"},
		{"numbers as texts", infer.Bytes, "2", "[1, 2]", "input 'IN': the array has values other than strings: attempt to access JSON non-string as string"},
		{"half an array", infer.Bytes, "2", `["a", `, "input 'IN': the values begin with a bracket but are not a JSON array"},
	} {
		f := form.Field{Name: "IN", Type: c.d, Shape: c.shape, Values: c.values}
		tensor, err := f.Read(heap())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = form.Shown(tensor)
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestProposedValuesAreReadable checks that the values that a form proposes for a model's inputs
// can be read as tensors.
func TestProposedValuesAreReadable(t *testing.T) {
	for _, c := range []struct {
		batch int32
		in    *kserve.ModelInput
		want  string
	}{
		{0, &kserve.ModelInput{DataType: kserve.DataType_TYPE_FP32, Dims: []int64{2}}, "[2] 1.0  1.0"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_INT32, Dims: []int64{2}}, "[1,2] 1  1"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_BOOL, Dims: []int64{-1, -1}}, "[1,1,1] true"},
		{0, &kserve.ModelInput{DataType: kserve.DataType_TYPE_STRING, Dims: []int64{-1}}, "[1] hello"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_INT32, Dims: []int64{2}, IsShapeTensor: true}, "[2] 1  1"},
	} {
		c.in.Name = "IN"
		f := form.Fields(&kserve.ModelConfig{MaxBatchSize: c.batch, Input: []*kserve.ModelInput{c.in}})[0]
		tensor, err := f.Read(heap())
		if err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		if got := form.Shown(tensor); got != c.want {
			t.Errorf("%v: got %q, want %q", c.in, got, c.want)
		}
	}
	f := form.Fields(&kserve.ModelConfig{Input: []*kserve.ModelInput{{Name: "IN", Optional: true, Dims: []int64{1}}}})[0]
	if !f.Empty() {
		t.Errorf("an optional input has the proposal %q, want none", f.Values)
	}
}

// TestPicturesBecomeTensors checks the conversion and scaling of a picture to the usual layouts of
// models.
func TestPicturesBecomeTensors(t *testing.T) {
	for _, c := range []struct {
		name string
		d    infer.DataType
		dims []int64
		want string
	}{
		{"channels last", infer.Uint8, []int64{-1, -1, 3}, "[2,4,3] 255  0  0\n0  0  254\n255  0  0\n0  0  254\n\n0  0  254\n255  0  0\n0  0  254\n255  0  0"},
		{"scaled, with alpha, in a batch", infer.Uint8, []int64{-1, 1, 2, 4}, "[1,1,2,4] 255  0  0  255\n255  0  0  255"},
		{"channels first", infer.FP32, []int64{3, 2, 2}, "[3,2,2] 255.0  255.0\n0.0  0.0\n\n0.0  0.0\n0.0  0.0\n\n0.0  0.0\n254.0  254.0"},
		{"grey", infer.Uint8, []int64{1, 2, 1}, "[1,2,1] 76\n76"},
		{"no picture", infer.Uint8, []int64{7}, "input 'IN': shape [7] is not that of a picture: want height, width and 1, 3 or 4 channels, or the channels first"},
		{"large", infer.Uint8, []int64{1 << 40, 1 << 40, 3}, "input 'IN': shape [1099511627776,1099511627776,3] has more than 33554432 elements"},
	} {
		f := form.Field{Name: "IN", Type: c.d, Dims: c.dims, File: form.Chequered(t)}
		tensor, err := f.Read(heap())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = form.Shown(tensor)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFilesBecomeTensors(t *testing.T) {
	f := form.Field{Name: "IN", Type: infer.Uint16, Shape: "-1", File: []byte{1, 0, 0, 1}}
	tensor, err := f.Read(heap())
	if got := form.Shown(tensor); err != nil || got != "[2] 1  256" {
		t.Errorf("bytes of a tensor: got %q, %v", got, err)
	}
	f.File = []byte{1}
	if _, err := f.Read(heap()); err == nil || err.Error() != "input 'IN': the file has 1 bytes, which is not a whole number of elements of type UINT16" {
		t.Errorf("half an element: got %v", err)
	}
	f = form.Field{Name: "IN", Type: infer.Bytes, Shape: "1,-1", File: form.Chequered(t)}
	if tensor, err = f.Read(heap()); err != nil || len(tensor.Data) != 4+len(f.File) {
		t.Errorf("a picture of a BYTES tensor: got %d bytes, %v, want it as it is", len(tensor.Data), err)
	}
}

// TestHalvesAreExact checks the conversion of all half-precision numbers in both directions, and of
// numbers between them.
func TestHalvesAreExact(t *testing.T) {
	for h := range 1 << 16 {
		v := infer.FromFP16(uint16(h))
		if back := infer.ToFP16(v); back != uint16(h) && v == v {
			t.Fatalf("%#04x is %v, which is %#04x", h, v, back)
		}
		if b := infer.ToBF16(infer.FromBF16(uint16(h))); b != uint16(h) && infer.FromBF16(uint16(h)) == infer.FromBF16(uint16(h)) {
			t.Fatalf("bfloat16 %#04x comes back as %#04x", h, b)
		}
	}
	for v, want := range map[float64]uint16{1 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, 65519: 0x7bff, 65520: 0x7c00, math.Ldexp(1, -25): 0, math.Ldexp(1.5, -25): 1} {
		if got := infer.ToFP16(float32(v)); got != want {
			t.Errorf("%v: got %#04x, want %#04x", v, got, want)
		}
	}
}
