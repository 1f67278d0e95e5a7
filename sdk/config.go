package sdk

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TypeOf returns the type of tensors whose config has the given one.
func TypeOf(named kserve.DataType) DataType {
	name := strings.TrimPrefix(named.String(), "TYPE_")
	if name == "STRING" {
		return Bytes
	}
	return infer.ParseDataType(name)
}

// ShapeString returns a shape, or the dims of a config, as Triton's texts have them: "[2,-1]".
func ShapeString(shape []int64) string { return infer.ShapeString(shape) }
