package signature_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/signature"
)

// TestRequestsWithoutInputsNeedNoBatch checks that a model with only optional inputs accepts a
// request without inputs, unless it has a batch dimension: the batch size would then be unknown.
func TestRequestsWithoutInputsNeedNoBatch(t *testing.T) {
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
		err := signature.New("m", config).Validate(t.Context(), &infer.Request{ID: "r"})
		if test.want == "" {
			if err != nil {
				t.Errorf("max_batch_size %d: got %q, want no error", test.batch, err)
			}
			continue
		}
		var refusal *signature.BackendRefusal
		if !errors.As(err, &refusal) || refusal.Err.Code != infer.InvalidArg || refusal.Error() != test.want {
			t.Errorf("max_batch_size %d: got %v, want the refusal %q", test.batch, err, test.want)
		}
	}
}

// tensorOf returns an input of zero bytes with this type and shape.
func tensorOf(name string, dataType infer.DataType, shape ...int64) infer.Tensor {
	n := int64(dataType.Size())
	for _, d := range shape {
		n *= max(d, 0)
	}
	return infer.Tensor{Name: name, DataType: dataType, Shape: shape, Data: make([]byte, n)}
}

// TestBadRequestsAreRefusedByText checks the errors of invalid requests. The texts are Triton's.
func TestBadRequestsAreRefusedByText(t *testing.T) {
	const (
		note   = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
		plain  = `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "O" }`
		option = `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] optional: true }`
		batch  = `max_batch_size: 4 ` + option
		text   = `input { name: "A" data_type: TYPE_STRING dims: [ -1 ] }`
	)
	a, b := tensorOf("A", infer.FP32, 2), tensorOf("B", infer.Int32, 3)
	words := func(shape int64, data string) infer.Tensor {
		return infer.Tensor{Name: "A", DataType: infer.Bytes, Shape: []int64{shape}, Data: []byte(data)}
	}
	for _, c := range []struct {
		name, config string
		inputs       []infer.Tensor
		outputs      []string
		want         string
	}{
		{"all", plain, []infer.Tensor{b, a}, []string{"O"}, ""},
		{"unknown output before all else", plain, nil, []string{"P"}, "unexpected inference output 'P' for model 'm'"},
		{"none", plain, nil, nil, "[request id: r] expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['A','B']. Please provide all required input(s)."},
		{"too few", plain, []infer.Tensor{b}, nil, "[request id: r] expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['B'], but missing required input(s) ['A']. Please provide all required input(s)."},
		{"too many", plain, []infer.Tensor{a, b, tensorOf("C", infer.FP32, 1)}, nil, "[request id: r] expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['A','B','C'], but missing required input(s) ]. Please provide all required input(s)."},
		{"none of an optional one", option, nil, nil, "[request id: r] expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['A']. Please provide all required input(s)."},
		{"a required one behind an optional one", option, []infer.Tensor{b}, nil, ""},
		{"unknown input", option, []infer.Tensor{tensorOf("C", infer.FP32, 1)}, nil, "unexpected inference input 'C' for model 'm'"},
		{"twice", option, []infer.Tensor{a, a}, nil, "[request id: r] input 'A' already exists in request"},
		{"type before shape", plain, []infer.Tensor{tensorOf("A", infer.Int8, 7), b}, nil, "[request id: r] inference input 'A' data-type is 'INT8', but model 'm' expects 'FP32'"},
		{"shape", plain, []infer.Tensor{tensorOf("A", infer.FP32, 1, 2), b}, nil, "[request id: r] unexpected shape for input 'A' for model 'm'. Expected [2], got [1,2]. "},
		{"unspecified", plain, []infer.Tensor{a, tensorOf("B", infer.Int32, -1)}, nil, "[request id: r] All input dimensions should be specified for input 'B' for model 'm', got [-1]"},
		{"negative", plain, []infer.Tensor{a, tensorOf("B", infer.Int32, -2)}, nil, "[request id: r] tensor 'B' contains an invalid dimension [-2]"},
		{"size", plain, []infer.Tensor{a, {Name: "B", DataType: infer.Int32, Shape: []int64{2}, Data: make([]byte, 7)}}, nil, "[request id: r] input byte size mismatch for input 'B' for model 'm'. Expected 8, got 7"},
		{"overflow", plain, []infer.Tensor{a, {Name: "B", DataType: infer.Int32, Shape: []int64{1 << 62}}}, nil, "[request id: r] byte size for tensor 'B' exceeds maximum size of 9223372036854775807"},

		{"batch", batch, []infer.Tensor{tensorOf("A", infer.FP32, 4, 2), tensorOf("B", infer.Int32, 4, 0)}, nil, ""},
		{"no batch dimension", batch, []infer.Tensor{{Name: "A", DataType: infer.FP32}}, nil, "[request id: r] input 'A' has no shape but model requires batch dimension for 'm'"},
		{"two batch sizes", batch, []infer.Tensor{tensorOf("A", infer.FP32, 4, 2), tensorOf("B", infer.Int32, 3, 1)}, nil, "[request id: r] input 'B' batch size does not match other inputs for 'm'"},
		{"a batch too large", batch, []infer.Tensor{tensorOf("A", infer.FP32, 5, 2)}, nil, "[request id: r] inference request batch-size must be <= 4 for 'm'"},
		{"shape of a batch", batch, []infer.Tensor{tensorOf("A", infer.FP32, 2)}, nil, "[request id: r] unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [2]." + note},
		{"an empty batch", batch, []infer.Tensor{tensorOf("A", infer.FP32, 0, 2)}, nil, "[request id: r] input byte size mismatch for input 'A' for model 'm'. Expected 8, got 0"},
		{"an empty batch with one item", batch, []infer.Tensor{{Name: "A", DataType: infer.FP32, Shape: []int64{0, 2}, Data: make([]byte, 8)}}, nil, "[request id: r] inference request batch-size must be <= 4 for 'm'"},
		{"an unspecified batch", batch, []infer.Tensor{tensorOf("A", infer.FP32, -1, 2)}, nil, "[request id: r] All input dimensions should be specified for input 'A' for model 'm', got [-1,2]"},
		{"an unspecified batch of another shape", batch, []infer.Tensor{tensorOf("A", infer.FP32, -1, 3)}, nil, "[request id: r] unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [-1,3]." + note},

		{"strings", text, []infer.Tensor{words(2, "\x01\x00\x00\x00a\x00\x00\x00\x00")}, nil, ""},
		{"no strings", text, []infer.Tensor{words(0, "")}, nil, ""},
		{"too few strings", text, []infer.Tensor{words(2, "\x01\x00\x00\x00a")}, nil, "[request id: r] expected 2 string elements for inference input 'A' for model 'm', got 1"},
		{"too many strings", text, []infer.Tensor{words(0, "\x01\x00\x00\x00a")}, nil, "[request id: r] unexpected number of string elements 1 for inference input 'A' for model 'm', expecting 0"},
		{"a length that is cut off", text, []infer.Tensor{words(1, "\x01\x00\x00")}, nil, "[request id: r] incomplete string length indicator for inference input 'A' for model 'm', expecting 4 bytes but only 3 bytes available. Please make sure the string length indicator is in one buffer."},
		{"a last string that is cut off", text, []infer.Tensor{words(1, "\x03\x00\x00\x00ab")}, nil, "incomplete string data for inference input 'A', expecting string of length 3 but only 2 bytes available"},
		{"an earlier string that is cut off", text, []infer.Tensor{words(2, "\x03\x00\x00\x00ab")}, nil, "[request id: r] expected 2 string elements for inference input 'A' for model 'm', got 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := &infer.Request{ID: "r", Inputs: slices.Clone(c.inputs), Outputs: c.outputs}
			err := signature.New("m", configOf(t, c.config)).Validate(t.Context(), request)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestARawTextStaysInItsMemory checks that the length of a raw text is written before it in the
// same memory, using the room that the front end left behind it.
func TestARawTextStaysInItsMemory(t *testing.T) {
	body := append(make([]byte, 0, 3+infer.RawPrefix), "abc"...)
	request := &infer.Request{Raw: true, Inputs: []infer.Tensor{{Data: body}}}
	config := configOf(t, `name: "m" backend: "python" input { name: "T" data_type: TYPE_STRING dims: [ 1 ] }`)
	if err := signature.New("m", config).Validate(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := request.Inputs[0].Data; string(got) != "\x03\x00\x00\x00abc" || &got[0] != &body[0] {
		t.Errorf("got %q in memory of its own: %t, want the length and the text where it was", got, &got[0] != &body[0])
	}
}

func configOf(t *testing.T, text string) *kserve.ModelConfig {
	t.Helper()
	config, err := config.ParseText("config.pbtxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestReshapesApplyBothWays checks that Validate gives inputs the model's shape, and that
// ShapeOutputs gives outputs the client's shape.
func TestReshapesApplyBothWays(t *testing.T) {
	for _, c := range []struct {
		name, tensor  string // the rest of the tensor's config
		batch         int32
		client, model []int64
	}{
		{"other dims", `dims: [ 2, 3 ] reshape { shape: [ 3, 2 ] }`, 0, []int64{2, 3}, []int64{3, 2}},
		{"scalars of a batch", `dims: [ 1 ] reshape { }`, 4, []int64{3, 1}, []int64{3}},
		{"variable", `dims: [ -1, 2, -1 ] reshape { shape: [ -1, 1, 2, -1, 1 ] }`, 0, []int64{5, 2, 7}, []int64{5, 1, 2, 7, 1}},
		{"variable in a batch", `dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] }`, 2, []int64{2, 2, 4, 9, 6}, []int64{2, 8, 9, 1, 6}},
		{"nothing of it", `dims: [ -1, 2 ] reshape { shape: [ -1, 1, 2 ] }`, 0, []int64{0, 2}, []int64{0, 1, 2}},
		{"no reshape", `dims: [ -1, 2 ]`, 3, []int64{3, 4, 2}, []int64{3, 4, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := configOf(t, `name: "m" backend: "python" input { name: "T" data_type: TYPE_INT8 `+c.tensor+` } output { name: "T" data_type: TYPE_INT8 `+c.tensor+` }`)
			given.MaxBatchSize = c.batch
			completed, err := config.Rules{}.Complete(given, nil)
			if err != nil {
				t.Fatal(err)
			}
			spec := signature.New("m", completed)
			request := &infer.Request{Inputs: []infer.Tensor{tensorOf("T", infer.Int8, c.client...)}}
			if err := spec.Validate(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			if got := request.Inputs[0].Shape; !slices.Equal(got, c.model) {
				t.Errorf("input: the model sees %v, want %v", got, c.model)
			}
			response := &infer.Response{Outputs: []infer.Tensor{tensorOf("T", infer.Int8, c.model...)}}
			spec.ShapeOutputs(response)
			if got := response.Outputs[0].Shape; !slices.Equal(got, c.client) {
				t.Errorf("output: the client sees %v, want %v", got, c.client)
			}
		})
	}
}

// TestAScalarOutputOfABatch checks a rank of 0 from a batching model whose output is reshaped from
// an empty shape. The client gets the dims without a batch dimension, as with Triton 2.51.0.
func TestAScalarOutputOfABatch(t *testing.T) {
	given := configOf(t, `name: "m" backend: "python" max_batch_size: 8 output { name: "T" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }`)
	completed, err := config.Rules{}.Complete(given, nil)
	if err != nil {
		t.Fatal(err)
	}
	response := &infer.Response{Outputs: []infer.Tensor{tensorOf("T", infer.FP32)}}
	signature.New("m", completed).ShapeOutputs(response)
	if got := response.Outputs[0].Shape; !slices.Equal(got, []int64{1}) {
		t.Errorf("the client sees %v, want [1]", got)
	}
}

// outside is foreign memory that counts its copies.
type outside struct {
	bytes  string
	gone   error
	copies int
}

func (o *outside) Retain()     {}
func (o *outside) Release()    {}
func (o *outside) Size() int64 { return int64(len(o.bytes)) }
func (o *outside) Copy(context.Context) ([]byte, infer.Memory, error) {
	o.copies++
	return []byte(o.bytes), nil, o.gone
}

// TestForeignInputsAreCopiedOnlyToBeWalked checks that an input in foreign memory is copied only if
// its elements must be walked. Otherwise only its size is checked.
func TestForeignInputsAreCopiedOnlyToBeWalked(t *testing.T) {
	const numbers, text = `input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]`, `input [ { name: "A" data_type: TYPE_STRING dims: [ -1 ] } ]`
	gone := errors.New("the client has truncated it")
	for _, c := range []struct {
		name, config string
		memory       outside
		want         string
		copies       int
	}{
		{"numbers", numbers, outside{bytes: "12345678"}, "", 0},
		{"numbers of another size", numbers, outside{bytes: "1234567"}, "[request id: r] input byte size mismatch for input 'A' for model 'm'. Expected 8, got 7", 0},
		{"strings", text, outside{bytes: "\x01\x00\x00\x00a\x00\x00\x00\x00"}, "", 1},
		{"too few strings", text, outside{bytes: "\x01\x00\x00\x00a"}, "[request id: r] expected 2 string elements for inference input 'A' for model 'm', got 1", 1},
		{"strings that have vanished", text, outside{bytes: "1234", gone: gone}, gone.Error(), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := tensorOf("A", infer.FP32, 2)
			if c.config == text {
				in.DataType = infer.Bytes
			}
			in.Data, in.Memory = nil, &c.memory
			err := signature.New("m", configOf(t, c.config)).Validate(t.Context(), &infer.Request{ID: "r", Inputs: []infer.Tensor{in}})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want || c.memory.copies != c.copies {
				t.Errorf("got %q after %d copies\nwant %q after %d", got, c.memory.copies, c.want, c.copies)
			}
		})
	}
}
