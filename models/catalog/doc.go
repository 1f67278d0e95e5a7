// Package catalog is what the registry knows of models: what each is wanted and served
// from, which of its versions are in which state, and what follows from both for
// ensembles, which serve as long as the models of their steps do. It loads and ends
// nothing itself: operations bring up versions and tell the catalog of each step, and its
// Owner ends versions that are taken out of service.
//
// # States of a version
//
//	          Begin           Commit            Commit, Aim, Invalidate, RetireAll            Ended
//	(unknown) ─────▶ LOADING ───────▶ READY ─────────────────────────────────────▶ UNLOADING ─────▶ UNAVAILABLE "unloaded"
//	                    └─ Fail ─▶ UNAVAILABLE, with the reason
//
// All versions that Commit is given become READY in one step, and those that they replace
// UNLOADING in the same step. A version that is READY stays so while its successor is
// LOADING elsewhere, and if that fails. Exchange gives versions that are READY other
// instances.
//
// # What requests see
//
// After each step the catalog publishes a copy of all states, which never changes, behind
// one atomic pointer. Find and FindModel load it, take no lock and allocate nothing. The
// owner is asked to end a version only once the copy without it is published: a
// request that found the version before and cannot hold it any more finds its successor.
//
// # Locks
//
// Catalog.mu guards all but that pointer. It is held for look-ups and updates alone: no file is
// read, no process started and no scheduler called under it. Methods that end in Locked
// want it held. Owner is called with it held, and may take nothing under it but the wait group
// that Shutdown waits for.
//
// # Callers
//
// Looking up is for any goroutine at any time. The steps (Want, Aim, Invalidate, Begin, Turn, Commit,
// Fail, Restore, Exchange, Forget) are for the operation that holds the model in the lock table:
// between two of its steps only RetireAll and Ended change the model.
//
// # Memory
//
// The catalog keeps a model until Forget, and a version for as long as the model is not loaded
// without it. A version may end when its model has been forgotten: Ended passes it over. A wanted Source is a user of its upload; Want and Restore
// return the uploads that are not wanted any more, for the caller to drop without the lock.
package catalog
