package sdk

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// DataType is the type of a tensor's elements.
type DataType = infer.DataType

// The data types.
const (
	Bool   = infer.Bool
	Uint8  = infer.Uint8
	Uint16 = infer.Uint16
	Uint32 = infer.Uint32
	Uint64 = infer.Uint64
	Int8   = infer.Int8
	Int16  = infer.Int16
	Int32  = infer.Int32
	Int64  = infer.Int64
	FP16   = infer.FP16
	FP32   = infer.FP32
	FP64   = infer.FP64
	Bytes  = infer.Bytes
	BF16   = infer.BF16
)

// Error is an error with a code for clients. Any other error reaches them as Internal.
type Error = infer.Error

// Code classifies an Error.
type Code = infer.Code

// The codes.
const (
	Unknown       = infer.Unknown
	Internal      = infer.Internal
	NotFound      = infer.NotFound
	InvalidArg    = infer.InvalidArg
	Unavailable   = infer.Unavailable
	Unsupported   = infer.Unsupported
	AlreadyExists = infer.AlreadyExists
	Cancelled     = infer.Cancelled
)

// Errorf returns an Error.
func Errorf(code Code, format string, args ...any) *Error { return infer.Errorf(code, format, args...) }

// Parameter is a custom parameter of a request.
type Parameter = infer.Parameter

// NewParameter creates a parameter from a string, an integer, a bool or a float.
func NewParameter(name string, value any) (Parameter, error) {
	return execution.NewParameter(name, value)
}
