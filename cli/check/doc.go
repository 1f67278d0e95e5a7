// Package check is the subcommand `nereid check`: it reads a repository as the server would, and says what is wrong with
// it and what a Triton would do differently. docs/check.md describes it for users.
//
//	Run ── server flags ── nereid.New ─┬─ Registry.Examine ── files ── triton ─┬─ findings ── report
//	                    no endpoints   ├─ Load, with --import                  │  sorted, each once
//	                                   └─ request, with --try, --write-config ─┘
//
// What the server itself would say comes from the code of its load path: models.Registry.Examine for what the files say,
// Server.Load for what the models say, and the log of both. This package adds what is only seen beside the
// configuration: files that are named almost right, a model.py without its class, labels that do not fit.
//
// A repository in an object store is copied whole first; the report names the store.
//
// Exit status: 0 no error was found, 1 some were, 2 the command line is not understood or there is no repository.
//
// Trust: the repository is the user's own. Files that are looked at are read up to a bound; code of models runs with
// --import alone, in processes as the server's.
//
// States, goroutines: none of its own. Lock: that of the captured log, a leaf, as loads write it side by side.
//
// Callers: package cli, once; it lends what reads the flags of the server.
//
// Memory: what models answer to --try is released when it has been looked at.
package check
