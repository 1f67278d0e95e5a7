package config

import (
	"fmt"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/kserve"
)

// describedTensor is the common interface of inputs and outputs.
type describedTensor interface {
	GetName() string
	GetDataType() kserve.DataType
	GetDims() []int64
	GetReshape() *kserve.ModelTensorReshape
	GetIsShapeTensor() bool
	GetIsNonLinearFormatIo() bool
}

// validateTensors checks inputs, outputs and batch tensors of a complete configuration.
func validateTensors(config *kserve.ModelConfig) error {
	refuse := func(format string, args ...any) error {
		return invalid("%s for %s", fmt.Sprintf(format, args...), config.Name)
	}
	for _, in := range config.Input {
		text := tensorFault("input", in, config)
		if text == "" && (in.Format == kserve.ModelInput_FORMAT_NHWC || in.Format == kserve.ModelInput_FORMAT_NCHW) && len(in.Dims) != 3 {
			text = "model input NHWC/NCHW require 3 dims"
		}
		if text == "" {
			text = layoutFault("input", in, config)
		}
		if text != "" {
			return refuse("%s", text)
		}
	}
	for _, out := range config.Output {
		text := tensorFault("output", out, config)
		if text == "" {
			text = layoutFault("output", out, config)
		}
		if text != "" {
			return refuse("%s", text)
		}
	}
	if text := batchFault(config); text != "" {
		return refuse("%s", text)
	}
	return nil
}

// tensorFault returns the fault in name, type or shape of a tensor, or "". direction is input or
// output.
func tensorFault(direction string, t describedTensor, config *kserve.ModelConfig) string {
	if t.GetName() == "" {
		return fmt.Sprintf("model %s must specify 'name'", direction)
	}
	subject := fmt.Sprintf("model %s '%s' ", direction, t.GetName())
	reshape := t.GetReshape()
	shape := reshape.GetShape()
	bad := func(dim int64) bool { return dim < 1 && dim != -1 }
	switch {
	case t.GetDataType() == kserve.DataType_TYPE_INVALID:
		return subject + "must specify 'data_type'"
	case len(t.GetDims()) == 0:
		return subject + "must specify 'dims'"
	case config.MaxBatchSize == 0 && reshape != nil && len(shape) == 0:
		return subject + "cannot have empty reshape for non-batching model as scalar tensors are not supported"
	case slices.ContainsFunc(t.GetDims(), bad):
		return subject + "dimension must be integer >= 1, or -1 to indicate a variable-size dimension"
	case slices.ContainsFunc(shape, bad):
		return subject + "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension"
	case reshape == nil:
		return ""
	}
	given, made := runs(t.GetDims()), runs(shape)
	switch {
	case len(shape) == 0 && len(given) == 1 && given[0] == product{low: 1}:
		return "" // a single element becomes a scalar
	case len(shape) == 0, (len(given) == 1) != (len(made) == 1):
		return subject + "has different size for dims and reshape"
	case len(given) != len(made):
		return subject + "has different number of variable-size dimensions for dims and reshape"
	case !slices.Equal(given, made):
		return subject + "has different size for dims and reshape"
	}
	return ""
}

// product is a number of elements; overflow means that it exceeds 64 bits.
type product struct {
	low      uint64
	overflow bool
}

// runs multiplies the dimensions between the variable ones.
func runs(dims []int64) []product {
	products := []product{{low: 1}}
	for _, dim := range dims {
		if dim < 0 {
			products = append(products, product{low: 1}) // bound: the config
			continue
		}
		p := &products[len(products)-1]
		high, low := bits.Mul64(p.low, uint64(dim))
		p.low, p.overflow = low, p.overflow || high != 0
	}
	return products
}

// layoutFault refuses properties that only TensorRT models can have.
func layoutFault(direction string, t describedTensor, config *kserve.ModelConfig) string {
	tensorrt := config.Platform == platformTensorRT
	switch {
	case t.GetIsShapeTensor() && !tensorrt:
		return "shape tensors are only supported for TensorRT platform"
	case t.GetIsNonLinearFormatIo() && !tensorrt:
		return "Non-linear IO format is only supported for the TensorRT platform"
	case t.GetIsNonLinearFormatIo() && len(t.GetDims()) != 3:
		return "Non-linear IO format " + direction + " requires 3 dims"
	}
	return ""
}

// validateBatchTypes checks the types of batch_input, which Triton's backends check before the
// server checks anything. The text does not name the model.
func validateBatchTypes(config *kserve.ModelConfig) error {
	if config.Platform == PlatformEnsemble {
		return nil // which has no backend
	}
	for _, in := range config.BatchInput {
		if in.DataType == kserve.DataType_TYPE_INVALID {
			return invalid("unexpected batch input data type 'TYPE_INVALID'")
		}
	}
	return nil
}

// batchFault checks batch_input and batch_output.
func batchFault(config *kserve.ModelConfig) string {
	inputs, outputs := make(map[string]bool), make(map[string]bool)
	for _, in := range config.Input {
		inputs[in.Name] = true // bound: the config
	}
	for _, out := range config.Output {
		outputs[out.Name] = true // bound: the config
	}
	for _, in := range config.BatchInput {
		if !known(in.Kind) {
			return "unknown batch input kind ''" // an unknown kind has no name
		}
		if n := len(in.SourceInput); n != 1 {
			return fmt.Sprintf("batch input kind '%s' expects 1 source input, got %d", in.Kind, n)
		}
		if in.DataType != kserve.DataType_TYPE_INT32 && in.DataType != kserve.DataType_TYPE_FP32 {
			return "batch input data type must be TYPE_INT32 or TYPE_FP32"
		}
		for _, source := range in.SourceInput {
			if !inputs[source] {
				return fmt.Sprintf("unknown source input name '%s'", source)
			}
		}
	}
	for _, out := range config.BatchOutput {
		targets := make(map[string]bool)
		if !known(out.Kind) {
			return "unknown batch output kind ''"
		}
		if n := len(out.SourceInput); n != 1 {
			return fmt.Sprintf("batch output kind '%s' expects 1 source input, got %d", out.Kind, n)
		}
		for _, source := range out.SourceInput {
			if !inputs[source] {
				return fmt.Sprintf("unknown source input name '%s'", source)
			}
		}
		for _, target := range out.TargetName {
			switch {
			case !outputs[target]:
				return fmt.Sprintf("unknown target output name '%s'", target)
			case targets[target]:
				return fmt.Sprintf("target output name '%s' can only be specified once", target)
			}
			targets[target] = true // bound: the config
		}
	}
	return ""
}

// known reports whether an enum's number has a name.
func known(e protoreflect.Enum) bool {
	return e.Descriptor().Values().ByNumber(e.Number()) != nil
}
