package catalog

import (
	"context"

	"github.com/nereid-serving/nereid/models/repository"
)

// Operation is one change of models that is under way.
type Operation struct {
	// Outdates reports whether bringing a model up from load is pointless once this
	// operation has been asked for. It is called without a lock, and set before Lock.
	// Nil: it outdates nothing.
	Outdates func(id repository.Identity, load *Source) bool

	name   string // the model that it is about
	from   string // the model whose load waits for it, "" for none
	parent *Operation

	// Guarded by the table's mu.
	giveUp  context.CancelCauseFunc         // ends what the operation does; nil before Bound
	brings  map[repository.Identity]*Source // what it brings up
	wants   repository.Set                  // what it waits for, nil while it does not
	touched repository.Set                  // what its children have changed below models that it has locked
}

// CircleError refuses an operation for which a load waits that it would wait for.
type CircleError struct {
	Way []string // the names of the models that would wait, from the one whose load waits
}

func (e *CircleError) Error() string { return "the load would wait for itself" }

// Name is the name of the model that the operation is about.
func (op *Operation) Name() string { return op.name }

// GiveUp ends the context that Bound has returned, with a cause.
func (op *Operation) GiveUp(cause error) { op.giveUp(cause) }

// descends reports whether ancestor waits for the operation, over any number of
// others.
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
