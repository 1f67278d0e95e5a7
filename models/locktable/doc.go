// Package locktable says which operation changes which models.
//
// An Operation is one load, unload or other change of models. Begin announces it,
// Lock gives it all models that it needs at once, Unlock takes them back, End ends it:
//
//	Begin ─▶ Lock ─▶ (change models) ─▶ End
//	           ▲            │
//	           └── Unlock ◀─┘ it needs more than it had thought
//
// An operation locks all that it needs in one step, or waits and has none of it
// meanwhile; so operations wait for each other only through the code of a model that
// asks for a change while it is being loaded. Such an operation has a parent, which
// waits for it. It goes ahead of others that wait, and Lock refuses it with a
// CircleError if its parent would wait for itself.
//
// TryLock locks what is free and waits for nothing.
//
// An operation that waits may find that what another one brings up is outdated by
// its own request: after the table's patience, the other one's context ends.
//
// Locks: the table's mutex is a leaf; Operation.Outdates runs without it. Operations
// may be begun, locked and ended from any goroutine; what one operation does with the
// table is done by one goroutine at a time.
package locktable
