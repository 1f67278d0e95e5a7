// Package check is the subcommand `nereid check`. It validates a repository as the server would,
// and reports errors and differences from Triton. docs/check.md describes it for users.
//
//	Run ── server flags ── nereid.New ─┬─ Registry.Examine ── files ── triton ─┬─ findings ── report
//	                    no endpoints   ├─ Load, with --import                  │  sorted, each once
//	                                   └─ request, with --try, --write-config ─┘
//
// Most findings come from the server's own load path: models.Registry.Examine validates files,
// Server.Load loads models, and the log is captured. This package adds findings about other files:
// misspelt names, a model.py without its class, labels that do not fit.
//
// A repository in an object store is copied first; the report names the store.
//
// The exit status is 0 without errors, 1 with errors, and 2 for a bad command line or a missing
// repository.
//
// The repository is the user's own. Files are read up to a bound. Models' code runs with --import
// only, in processes like the server's.
//
// The captured log has the only lock, because models load in parallel.
package check
