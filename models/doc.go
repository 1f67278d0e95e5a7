// Package models is the registry: it finds the version of a model that a request reaches, and
// changes which versions serve. The packages below it know nothing of it: catalog knows
// which models and versions there are and in which states, version brings up and runs one
// version of a model, config knows what a model's configuration means, repository where models
// lie, and locktable which operation may change them.
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
// With Develop a developer looks at the sources of models in the place of a poller, among them the files elsewhere that
// processes report as imported (repository.Imports, one for each version, from its load on), and gates hold up
// clients' requests (Registry.Target) for a model from a change of its sources until it is loaded or has failed to.
//
// # Locks
//
// Operations lock models in the lock table. The catalog has a lock of its own for single
// look-ups and steps; under it the registry is called back (view.End) and takes the lock of the
// wait group that Shutdown waits for, and no other. loadInProgress.mu, change.mu, developer.mu, gates.mu, troubles.mu and work.mu are
// leaves. Nothing waits for the lock table while it holds any of these.
//
// # Callers
//
// Front ends call Target and what describes models, at any time and from any
// goroutine. RegisterRepository and UnregisterRepository change which directories the next
// operation reads, and no model that serves; the latter has the catalog forget unloaded models without a directory. Backends call the Host that Open was given, from code of models. The
// owner calls Start once and Shutdown once; Shutdown returns when every process of
// every model has ended, or has been killed because its context ended.
//
// # Memory
//
// The registry copies no tensor. A request's inputs are the caller's until Infer
// returns; the outputs of a response belong to its receiver, which releases
// them. Info and the configuration in it do not change once they are published.
package models
