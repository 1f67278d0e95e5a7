package sdk

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TypeOf returns the data type that a config names.
func TypeOf(named kserve.DataType) DataType {
	name := strings.TrimPrefix(named.String(), "TYPE_")
	if name == "STRING" {
		return Bytes
	}
	return infer.ParseDataType(name)
}

// ShapeString formats a shape, or the dims of a config, as Triton does: "[2,-1]".
func ShapeString(shape []int64) string { return infer.ShapeString(shape) }
