package budget

import (
	"math"

	"github.com/nereid-serving/nereid/internal/bounds"
)

// Limits of values from clients and models without a flag. docs/operations.md lists them under
// Limits.
const (
	// MaxName limits the name of a model, of a tensor and of a parameter, in bytes.
	MaxName = 4 << 10
	// MaxJSONDepth limits the nesting of JSON.
	MaxJSONDepth = 100
	// MaxStops limits the entries of OpenAI's "stop".
	MaxStops = 16
)

// Limits limits values that no client needs to be large, the first four in bytes. 0 stands for the
// default of each.
type Limits struct {
	// SmallBody limits the body of every HTTP endpoint except inference, generate and load, and
	// every unary gRPC message except ModelInfer and RepositoryModelLoad. Default 1 MiB.
	SmallBody int64
	// RequestID limits the id of an inference request. Default 64 KiB.
	RequestID int64
	// Parameters limits the names and values of all parameters of one request. Default 1 MiB.
	Parameters int64
	// ConfigOverride limits the config of a load request. Default 1 MiB.
	ConfigOverride int64
	// LoadFiles limits the files and directories of a load request. Default 16,384.
	LoadFiles int
	// GroupInstances limits the instances that a request may give a group of a model. Default 1024.
	GroupInstances int
}

// Bounds lists the limits with their defaults and bounds.
func (l *Limits) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("SmallBody", &l.SmallBody, 1<<20, 1, math.MaxInt64),
		bounds.Of("RequestID", &l.RequestID, 64<<10, 1, math.MaxInt64),
		bounds.Of("Parameters", &l.Parameters, 1<<20, 1, math.MaxInt64),
		bounds.Of("ConfigOverride", &l.ConfigOverride, 1<<20, 1, math.MaxInt64),
		bounds.Of("LoadFiles", &l.LoadFiles, 16384, 1, math.MaxInt),
		bounds.Of("GroupInstances", &l.GroupInstances, 1024, 1, math.MaxInt32),
	}
}

// WithDefaults returns l with defaults for unset fields.
func (l Limits) WithDefaults() Limits {
	l.Bounds().SetDefaults()
	return l
}
