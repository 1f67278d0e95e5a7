package catalog

import (
	"context"

	"github.com/nereid-serving/nereid/models/repository"
)

// Operation is one change of models in progress.
type Operation struct {
	// Outdates reports whether this operation makes a load from that source pointless. It is set
	// before Lock and called without a lock. Nil: it outdates nothing.
	Outdates func(id repository.Identity, load *Source) bool

	name   string // the model that it is about
	from   string // the model whose load waits for it, "" for none
	parent *Operation

	// Guarded by the table's mu.
	giveUp  context.CancelCauseFunc         // cancels the operation; nil before Bound
	brings  map[repository.Identity]*Source // the models that it loads
	wants   repository.Set                  // the models that it waits for, nil if it does not wait
	touched repository.Set                  // changed by its children below models that it holds; bound: the models
}

// CircleError refuses an operation whose load would wait for itself.
type CircleError struct {
	Way []string // the names of the models that would wait, from the one whose load waits
}

func (e *CircleError) Error() string { return "the load would wait for itself" }

// Name returns the name of the model that the operation is about.
func (op *Operation) Name() string { return op.name }

// GiveUp ends the context that Bound returned, with a cause.
func (op *Operation) GiveUp(cause error) { op.giveUp(cause) }

// descends reports whether ancestor waits for the operation, directly or indirectly.
func (op *Operation) descends(ancestor *Operation) bool {
	for at := op.parent; at != nil && ancestor != nil; at = at.parent {
		if at == ancestor {
			return true
		}
	}
	return false
}

func (op *Operation) touch(id repository.Identity) {
	if op.touched == nil {
		op.touched = make(repository.Set)
	}
	op.touched[id] = true
}
