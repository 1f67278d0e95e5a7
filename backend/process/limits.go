package process

import (
	"cmp"

	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/output"
)

// DefaultInstances is how many processes one model may have if Limits do not say.
const DefaultInstances = 4096

// Limits bound what models and their processes may ask of the server. 0 is the default of
// each.
type Limits struct {
	Instances int              // processes of one model; default DefaultInstances
	Output    output.Limits    // of what one process prints, and again of what its model logs
	Calls     hostcalls.Limits // of the host calls of one process
	// MemoryShare is the part of each kind of memory, in percent, that one version of a model
	// may have the server keep: of tensors that it was lent, of responses that wait, of strings
	// and frames. Default DefaultMemoryShare.
	MemoryShare int
}

// WithDefaults returns l with what holds where a field is not set.
func (l Limits) WithDefaults() Limits {
	return Limits{Instances: cmp.Or(l.Instances, DefaultInstances), Output: l.Output.WithDefaults(), Calls: l.Calls.WithDefaults(), MemoryShare: cmp.Or(l.MemoryShare, DefaultMemoryShare)}
}
