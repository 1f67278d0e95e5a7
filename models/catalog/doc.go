// Package catalog has the registry's data about models: the source from which each is wanted and
// served, and the state of each version. It also decides the consequences for ensembles, which
// serve only while the models of their steps serve. The catalog loads and ends nothing itself.
// Operations bring up versions and tell the catalog of each step; its Owner ends versions that are
// taken out of service.
//
// # States of a version
//
//	          Begin           Commit            Commit, Aim, Invalidate, RetireAll            Ended
//	(unknown) ─────▶ LOADING ───────▶ READY ─────────────────────────────────────▶ UNLOADING ─────▶ UNAVAILABLE "unloaded"
//	                    └─ Fail ─▶ UNAVAILABLE, with the reason
//
// Commit makes all new versions READY, and the versions that they replace UNLOADING, in one step. A
// READY version stays READY while its successor is LOADING, and if that load fails. Exchange gives
// READY versions other instances.
//
// # Snapshots for requests
//
// After each step the catalog publishes an immutable copy of all states behind one atomic pointer.
// Find and FindModel load it; they take no lock and allocate nothing. The owner is asked to end a
// version only after the copy without it is published. A request that found the version earlier and
// can no longer hold it therefore finds its successor.
//
// # Operations
//
// An Operation is one load, unload or other change of models. The LockTable assigns models to
// operations:
//
//	Begin ─▶ Lock ─▶ (change models) ─▶ End
//	           ▲            │
//	           └── Unlock ◀─┘ more models turn out to be needed
//
// An operation locks all models that it needs in one step; while it waits it holds none. Operations
// therefore wait for each other only through model code that requests a change while its own model
// is loading. Such an operation has a parent, which waits for it. It takes precedence over other
// waiting operations, and Lock refuses it with a CircleError if its parent would wait for itself.
//
// A waiting operation may make a load pointless that another operation is running. After the
// table's patience, the context of the other operation is cancelled.
//
// # Locks
//
// Catalog.mu guards everything except the atomic pointer. It is held for look-ups and updates only:
// no file is read, no process is started and no scheduler is called under it. Methods whose names
// end in Locked require it. Owner is called with it held and may take nothing but the wait group
// that Shutdown waits for. LockTable.mu is a leaf; Operation.Outdates runs without it.
//
// Any goroutine may look up at any time. The steps (Want, Aim, Invalidate, Begin, Turn, Commit,
// Fail, Restore, Exchange, Forget, Discard) belong to the operation that holds the model in the
// lock table. Between two of its steps only RetireAll and Ended change the model.
//
// # Memory
//
// The catalog keeps a model until Forget or Discard. Clients choose the names and versions of
// models whose files come with a load request, and may never use them again. So Surplus lists the
// oldest models to Discard if the data about models that serve nothing and have no directory exceed
// a limit. Beyond another limit the catalog forgets a model's lowest versions that do not serve.
// Ordinary repositories reach neither limit, and the index shows only models with a directory.
// Ended ignores a version whose model has been forgotten.
//
// A wanted Source is a user of its upload and its charge, a served one of its charge; Want, Restore
// and Discard return the sources that are no longer wanted, and the caller drops them without the
// lock.
package catalog
