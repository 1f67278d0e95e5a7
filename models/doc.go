// Package models is the registry: it finds the version of a model that serves a request, and
// changes which versions serve. The packages below it do not know the registry: catalog records the
// models, their versions and states, and which operation may change them; version brings up and
// runs one version of a model; config interprets model configurations; repository knows where
// models are stored.
//
// # A request
//
// Registry.Target loads one atomic pointer to an immutable snapshot and takes no lock. Infer holds
// the version at least until the scheduler has the request, and the scheduler finishes its requests
// before the version is closed. If the version was retired between Target and Infer, Infer fails
// with ErrReplaced before anything was sent, and the caller asks for a Target again.
//
// # A change
//
// Each load, unload, exchange of instances and poll of the repository is an operation. It locks all
// models that it changes, and the ensembles that depend on them, before it changes anything
// (catalog.LockTable). Operations on the same model run one after the other, and operations on
// different models run concurrently. A model's code may ask for a load while the model itself is
// loading. That operation is the child of the model's own load: it takes precedence over waiting
// operations, and is refused if the two would wait for each other.
//
// With Develop, a developer watches the sources of models instead of a poller, including files
// elsewhere that processes report as imported (repository.Imports, one for each version). Gates
// delay clients' requests (Registry.Target) for a model from a change of its sources until the
// model is loaded or its load has failed.
//
// # Locks
//
// Operations lock models in the lock table. The catalog has a lock of its own for single look-ups
// and steps. Under it the registry is called back (view.End) and takes only the lock of the wait
// group that Shutdown waits for. loadInProgress.mu, change.mu, developer.mu, gates.mu, troubles.mu
// and work.mu are leaves. No goroutine waits for the lock table while it holds any of these.
//
// # Callers
//
// Front ends call Target and the methods that describe models, at any time and from any goroutine.
// RegisterRepository and UnregisterRepository change which directories the next operation reads;
// serving models are unaffected. Model code calls the Host that Open received. The owner calls
// Start once and Shutdown once. Shutdown returns when every process of every model has ended, or
// has been killed because the context of Shutdown ended.
//
// # Memory
//
// The registry copies no tensor. The inputs of a request belong to the caller until Infer returns.
// The outputs of a response belong to its receiver, which releases them. Info and its configuration
// are immutable once published.
package models
