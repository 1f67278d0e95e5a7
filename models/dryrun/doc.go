// Package dryrun says what the files of models are good for, without loading one: what a start of the server would find
// before code of a model runs. It reads with the code of the load path, repository and version.Loader, and adds what is
// known only of several models: whether those of an ensemble fit.
//
//	Roots.Scan ── Roots.Read ── Loader.Examine ──▶ Model ── steps of ensembles ──▶ errors
//
// States, locks, goroutines: none. An Examiner may be used by several goroutines; a Model is its caller's.
//
// Callers: models.Registry, which lends its repository and its loader.
package dryrun
