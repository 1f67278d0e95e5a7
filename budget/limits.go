package budget

import (
	"cmp"
	"fmt"
)

// Bounds of values from clients and models that need no flag. docs/operations.md
// has them in its table of limits.
const (
	// MaxName bounds the name of a model, of a tensor and of a parameter, in bytes.
	MaxName = 4 << 10
	// MaxJSONDepth bounds the brackets that are open at once in a JSON text, the outermost included.
	MaxJSONDepth = 100
	// MaxStops bounds the entries of OpenAI's "stop".
	MaxStops = 16
)

// Limits bounds values that no client needs to be large, in bytes. A field that is 0 has its default.
type Limits struct {
	// SmallBody bounds the body of every HTTP endpoint except inference, generate and load,
	// and every unary gRPC message except ModelInfer and RepositoryModelLoad. Default 1 MiB.
	SmallBody int64
	// RequestID bounds the id of an inference request. Default 64 KiB.
	RequestID int64
	// Parameters bounds the names and values of all parameters of one request. Default 1 MiB.
	Parameters int64
	// ConfigOverride bounds the config of a load request. Default 1 MiB.
	ConfigOverride int64
}

// WithDefaults returns l with the default of each field that is not set.
func (l Limits) WithDefaults() Limits {
	l.SmallBody = cmp.Or(l.SmallBody, 1<<20)
	l.RequestID = cmp.Or(l.RequestID, 64<<10)
	l.Parameters = cmp.Or(l.Parameters, 1<<20)
	l.ConfigOverride = cmp.Or(l.ConfigOverride, 1<<20)
	return l
}

// Validate names the first field that is negative.
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
