package budget

import (
	"cmp"
	"fmt"
)

// Limits of values from clients and models without a flag. docs/operations.md lists them in its
// table of limits.
const (
	// MaxName limits the name of a model, of a tensor and of a parameter, in bytes.
	MaxName = 4 << 10
	// MaxJSONDepth limits the nesting of JSON.
	MaxJSONDepth = 100
	// MaxStops limits the entries of OpenAI's "stop".
	MaxStops = 16
)

// Limits limits values that no client needs to be large, in bytes. 0 stands for the default of
// each.
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
}

// WithDefaults returns l with defaults for unset fields.
func (l Limits) WithDefaults() Limits {
	l.SmallBody = cmp.Or(l.SmallBody, 1<<20)
	l.RequestID = cmp.Or(l.RequestID, 64<<10)
	l.Parameters = cmp.Or(l.Parameters, 1<<20)
	l.ConfigOverride = cmp.Or(l.ConfigOverride, 1<<20)
	return l
}

// Validate returns an error for the first negative field.
func (l Limits) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"SmallBody", l.SmallBody}, {"RequestID", l.RequestID},
		{"Parameters", l.Parameters}, {"ConfigOverride", l.ConfigOverride},
	} {
		if field.value < 0 {
			return fmt.Errorf("%s is %d, want at least 0", field.name, field.value)
		}
	}
	return nil
}
