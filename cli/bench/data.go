package bench

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/cli/tensors"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/recording"
)

// Fill values for an input, besides a file.
const (
	random = "random"
	zero   = "zero"
)

// Limits on the server's share of requests, in bytes.
const (
	mostDescribed = 1 << 20 // names and shapes of a request's tensors
	mostGenerated = 4 << 30 // generated inputs of all samples
	perTensor     = 256     // approximate overhead
)

// described returns how many bytes the tensors of a config add to each request, without their
// elements.
func described(config *kserve.ModelConfig) (n int) {
	for _, input := range config.GetInput() {
		n += perTensor + len(input.GetName()) + 8*len(input.GetDims())
	}
	for _, output := range config.GetOutput() {
		n += perTensor + len(output.GetName())
	}
	return n
}

// sample is the content of one request.
type sample []infer.Tensor

// makeSamples creates the samples, at least one.
//
// bound: the operator's files, and mostDescribed and mostGenerated
func makeSamples(o *options, config *kserve.ModelConfig) ([]sample, error) {
	if o.record != "" {
		return recordedSamples(o.record, o.model)
	}
	var given []map[string]json.RawMessage
	if o.data != "" {
		var err error
		if given, err = readData(o.data); err != nil {
			return nil, err
		}
	}
	for name := range o.inputs {
		if !hasInput(config, name) {
			return nil, unknownInput("--input", name, config)
		}
	}
	for name := range o.shapes {
		if !hasInput(config, name) {
			return nil, unknownInput("--shape", name, config)
		}
	}
	samples, generated := make([]sample, max(1, len(given))), 0
	for i := range samples {
		var values map[string]json.RawMessage
		if given != nil {
			values = given[i]
			for name := range values {
				if !hasInput(config, name) {
					return nil, unknownInput(fmt.Sprintf("%s: request %d", o.data, i), name, config)
				}
			}
		}
		for _, input := range config.GetInput() {
			t, err := makeTensor(o, config, input, values[input.GetName()])
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", input.GetName(), err)
			}
			if t == nil {
				continue
			}
			samples[i] = append(samples[i], *t)
			if values[t.Name] == nil && !strings.HasPrefix(o.inputs[t.Name], "@") {
				generated += len(t.Data)
			}
			if generated > mostGenerated {
				return nil, fmt.Errorf("the generated inputs of %d requests have more than %d bytes", len(samples), int64(mostGenerated))
			}
		}
	}
	return samples, nil
}

// recordedSamples returns the inputs of recorded requests to a model. Redacted inputs are zeros or
// empty strings.
//
// bound: the operator's files
func recordedSamples(directory, model string) (samples []sample, err error) {
	files, err := recording.Files(directory)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		r, err := recording.Open(file)
		if err != nil {
			return nil, err
		}
		if r.Model != model {
			continue
		}
		var s sample
		for i := range r.Request.Tensors {
			t := &r.Request.Tensors[i]
			if t.Redacted {
				if err := tensors.Fill(&t.Tensor, true, 0); err != nil {
					return nil, fmt.Errorf("%s: input %s: %w", file, t.Name, err)
				}
			}
			s = append(s, t.Tensor)
		}
		samples = append(samples, s)
	}
	if len(samples) == 0 {
		return nil, fmt.Errorf("%s has no recorded requests to model %s", directory, model)
	}
	return samples, nil
}

func hasInput(config *kserve.ModelConfig, name string) bool {
	return slices.ContainsFunc(config.GetInput(), func(i *kserve.ModelInput) bool { return i.GetName() == name })
}

// bound: mostDescribed
func unknownInput(where, name string, config *kserve.ModelConfig) error {
	var names []string
	for _, input := range config.GetInput() {
		names = append(names, input.GetName())
	}
	return fmt.Errorf("%s names input %q, but model %s has %s", where, name, config.GetName(), strings.Join(names, ", "))
}

// makeTensor creates one input, or returns nil if it is optional and unmentioned.
//
// bound: mostDescribed, and the operator's files and batch
func makeTensor(o *options, config *kserve.ModelConfig, input *kserve.ModelInput, value json.RawMessage) (*infer.Tensor, error) {
	name := input.GetName()
	fill, asked := o.inputs[name]
	dims, shaped := o.shapes[name]
	if input.GetOptional() && value == nil && !asked && !shaped {
		return nil, nil
	}
	t := &infer.Tensor{Name: name, DataType: infer.DataType(input.GetDataType()), Shape: input.GetDims()}
	if !t.DataType.Valid() {
		return nil, errors.New("the model's config gives it no type")
	}
	if shaped {
		if len(dims) != len(t.Shape) {
			return nil, fmt.Errorf("--shape gives it %d dimensions, want %d: the model's config has %s", len(dims), len(t.Shape), infer.ShapeString(t.Shape))
		}
		t.Shape = dims
	}
	if value != nil {
		if err := read(t, value); err != nil {
			return nil, err
		}
	}
	if at := slices.Index(t.Shape, -1); at >= 0 {
		ones, given := slices.Clone(t.Shape), make([]string, len(t.Shape))
		for i := range ones {
			ones[i] = max(ones[i], 1)
			given[i] = strconv.FormatInt(ones[i], 10)
		}
		// A file for a BYTES input is one element; other values determine the size.
		if file := strings.HasPrefix(fill, "@"); value != nil || file && t.DataType != infer.Bytes {
			return nil, fmt.Errorf("dimension %d of %s may have any size: set it with --shape, such as --shape %s:%s", at, infer.ShapeString(t.Shape), name, strings.Join(given, ","))
		}
		t.Shape = ones
	}
	copies := int64(1)
	if config.GetMaxBatchSize() > 0 {
		copies = o.batch
		t.Shape = slices.Concat([]int64{o.batch}, t.Shape)
	} else if o.batch > 1 {
		return nil, fmt.Errorf("--batch is %d, but model %s does not support batching", o.batch, config.GetName())
	}
	switch {
	case value != nil:
		t.Data = slices.Repeat(t.Data, int(copies))
	case strings.HasPrefix(fill, "@"):
		data, err := os.ReadFile(fill[1:])
		if err != nil {
			return nil, err
		}
		if t.DataType == infer.Bytes { // the file is one element
			data = tensors.AppendElement(nil, data)
		}
		t.Data = slices.Repeat(data, int(copies))
	default:
		if err := tensors.Fill(t, fill == zero, o.textLength); err != nil {
			return nil, err
		}
	}
	return t, tensors.Check(t)
}

// readData reads requests in perf_analyzer's format: {"data": [{NAME: …}, …]}, or lists of them.
//
// bound: the operator's file
func readData(path string) ([]map[string]json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []map[string]json.RawMessage
	for i, entry := range file.Data {
		var several []map[string]json.RawMessage
		if json.Unmarshal(entry, &several) != nil {
			one := make(map[string]json.RawMessage)
			if err := json.Unmarshal(entry, &one); err != nil {
				return nil, fmt.Errorf("%s: entry %d of data: %w", path, i, err)
			}
			several = append(several, one)
		}
		all = append(all, several...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: data has no requests", path)
	}
	return all, nil
}

// read reads a value in perf_analyzer's format: an array, {"content": …, "shape": […]}, or {"b64":
// …}.
//
// bound: the operator's file
func read(t *infer.Tensor, value json.RawMessage) error {
	var object struct {
		Content json.RawMessage `json:"content"`
		Shape   []int64         `json:"shape"`
		Base64  *string         `json:"b64"`
	}
	if value[0] == '{' {
		if err := json.Unmarshal(value, &object); err != nil {
			return err
		}
		if object.Shape != nil {
			t.Shape = object.Shape
		}
		value = object.Content
	}
	if object.Base64 != nil {
		data, err := base64.StdEncoding.DecodeString(*object.Base64)
		if err != nil {
			return fmt.Errorf("b64: %w", err)
		}
		if t.DataType == infer.Bytes {
			data = tensors.AppendElement(nil, data)
		}
		t.Data = data
		return nil
	}
	return tensors.Read(t, value)
}
