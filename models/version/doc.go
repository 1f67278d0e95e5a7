// Package version is one version of a model: what brings it up, holds its requests, has
// its instances exchanged and ends it. It knows nothing of the registry above it, of
// other models or of where models lie; what it asks of these goes through Registry.
//
// # States
//
//	          Load                                                            Close
//	(nothing) ────▶ config complete ─▶ instances started ─▶ all warm ─▶ open ─────▶ closing ─▶ closed
//	                       └──────────────────┴──▶ (nothing), with the reason
//
// Load returns a version that is open, or an error and no trace of it. A closing version
// cannot be held any more: a request that found it before is refused with ErrReplaced.
// Close waits for the holders, then for the requests in the scheduler, and then ends the
// instances. The unload timeout of the model and Registry.Lifetime bound these waits; what
// is left then is ended by force.
//
// An Exchange gives an open version other instances. Regroup and Resize bring up what is
// new and hold it back behind the warm-up barrier:
//
//	(nothing) ─ Regroup, Resize ─▶ prepared ─ Commit ─▶ new instances take batches, surplus ones end when idle
//	                                 └────── Drop ───▶ new instances end, all is as it was
//
// # The way of a request
//
//	requests:  Infer, Submit ─▶ hold ─▶ signature ─▶ response cache ─▶ scheduler ─▶ rate limiter ─▶ stacking ─▶ instance
//	instances: instance ─▶ stacking ─▶ rate limiter ─▶ warm-up barrier ─▶ scheduler
//
// Loader puts the chain together from the config of the version (chain.go); what the config
// does not ask for is not in it. Clients' requests come by Version.Infer, which holds the
// version itself. BLS requests come by Held.Submit and the steps of ensembles by
// composed.Submit, with a hold that their callers have taken.
//
// # Locks
//
// The package has no lock. The count of holds is one atomic number (hold.go), and a Version does
// not change: an Exchange has a copy of it show another config, and both copies share
// scheduler, model, barrier and holds, so that either may be held and only one is closed.
// Registry and backend are called with nothing locked.
//
// # Callers
//
// The registry calls Load, Regroup, Resize, Commit and Drop from its operations, one at a
// time for each version, and Close once; while the server exits, Close may come beside an
// exchange. All else may be called at any time and from any goroutine; after Close it
// refuses, or describes what was.
//
// # Memory
//
// No tensor is copied here but inputs that lie in foreign memory and responses that the
// cache keeps. The inputs of a request are the caller's until Infer returns; the outputs of a
// response belong to its receiver, which releases them. Info, its config and its JSON do
// not change. A copy is used until the version is closed.
package version
