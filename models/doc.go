// Package models is the registry: which models exist, which of their versions serve,
// and how they change. The packages below it know nothing of it: version brings up and
// runs one version of a model, config knows what a model's configuration means, repository
// where models lie, and locktable who may change them.
//
// # A version
//
//	           load                       replaced, unloaded, shutdown
//	(unknown) ──────▶ LOADING ──▶ READY ──────────────────────────────▶ UNLOADING ──▶ UNAVAILABLE "unloaded"
//	                     └─▶ UNAVAILABLE, with the reason of the failure
//
// All versions that a load brings up become READY in one step, and those that they
// replace become UNLOADING in the same step: a request finds either the old set or
// the new one. A version that is UNLOADING finishes the requests that it has, then
// its model is closed.
//
// # A request
//
// Registry.Target loads one atomic pointer to all that serves, which never changes
// once it is published, and takes no lock. Infer holds the version at
// least until the scheduler has the request, and the scheduler finishes what it has
// before the version is closed. If the version was retired between Target and Infer,
// Infer fails with ErrReplaced before anything was sent, and the caller asks for a
// Target again. What happens inside the version, its package tells.
//
// # A change
//
// Each load, unload, exchange of instances and look at the repository is an
// operation. It locks all models that it is to change, and the ensembles above them,
// before it changes anything (package locktable), so that two operations on one
// model follow each other and operations on others run side by side. A model's code
// may ask for a load while it is itself loading: that operation is the child of
// its loader's, goes ahead of those that wait, and is refused where the two would
// wait for each other.
//
// # Files
//
// The package has more than fifteen files because each kind of change of models begins in
// one of its own, and all of them share the catalog and its lock.
//
//	what is known      catalog, transitions, serving, shown, dependencies, compose, source, plan
//	what is read       reader, override
//	changes            registry, start, explicit, poll, load, change, unload, shutdown, control, errors
//	what clients ask   index, target, instances
//
// # Locks
//
// The catalog's mu guards what is known of each model and is held for look-ups and
// updates alone: no file is read, no process started and no scheduler called under
// it. Methods that end in Locked want it held. Under it nothing else is locked but the
// wait group that Shutdown waits for, and nothing at all under change.mu and the lock
// of locktable.
//
// # Callers
//
// Front ends call Target and what describes models, at any time and from any
// goroutine. Backends call the Host that Open was given, from code of models. The
// owner calls Start once and Shutdown once; Shutdown returns when every process of
// every model has ended, or has been killed because its context ended.
//
// # Memory
//
// The registry copies no tensor. A request's inputs are the caller's until Infer
// returns; the outputs of a response belong to its receiver, which releases
// them. Info and the configuration in it do not change once they are published.
package models
