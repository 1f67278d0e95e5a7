// Package version is one version of a model: its load, its requests, the exchange of its instances,
// and its end. It does not know the registry above it, other models, or where models are stored. It
// asks for these through Registry.
//
// # States
//
//	          Load                                                            Close
//	(nothing) ────▶ config complete ─▶ instances started ─▶ all warm ─▶ open ─────▶ closing ─▶ closed
//	                       └──────────────────┴──▶ (nothing), with the reason
//
// Load returns an open version, or an error and leaves nothing behind. A closing version can no
// longer be held: a request that found it earlier fails with ErrReplaced. Close waits for the
// holders, then for the requests in the scheduler, and then ends the instances. The model's unload
// timeout and Registry.Lifetime bound these waits; after that, everything that is left is killed.
//
// An Exchange gives an open version other instances. Regroup and Resize bring up the new instances
// and hold them back behind the warm-up barrier:
//
//	(nothing) ─ Regroup, Resize ─▶ prepared ─ Commit ─▶ new instances take batches, surplus ones end when idle
//	                                 └────── Drop ───▶ new instances end, all is as it was
//
// # Requests
//
//	requests:  Infer, Submit ─▶ hold ─▶ signature ─▶ response cache ─▶ scheduler ─▶ rate limiter ─▶ stacking ─▶ instance
//	instances: instance ─▶ stacking ─▶ rate limiter ─▶ warm-up barrier ─▶ scheduler
//
// Loader builds the chain from the version's config (chain.go) and leaves out the parts that the
// config does not ask for. Clients' requests arrive through Version.Infer, which holds the version.
// BLS requests arrive through Held.Submit, and the steps of ensembles through composed.Submit, with
// a hold that their callers have taken.
//
// # Locks
//
// The package has no lock. The count of holds is one atomic number (hold.go), and a Version is
// immutable: an Exchange makes a copy with another config. Both copies share scheduler, model,
// barrier and holds, so that either may be held and only one is closed. Registry and backend are
// called with nothing locked.
//
// The registry calls Load, Regroup, Resize, Commit and Drop from its operations, one at a time for
// each version, and Close once. While the server exits, Close may run beside an exchange.
// Everything else may be called at any time and from any goroutine.
//
// # Memory
//
// The package copies no tensor except inputs in foreign memory and responses that the cache keeps.
// The inputs of a request belong to the caller until Infer returns. The outputs of a response
// belong to its receiver, which releases them. Info, its config and its JSON are immutable. A copy
// of the model's files is used until the version is closed.
package version
