// Package conformance checks that a backend follows the rules of docs/backends.md for hooks,
// ownership, inputs and outputs. It acts as a server's scheduler: it gives batches to instances and
// checks the results.
//
//	Run (a Go test) ──────────┐
//	                          ├─▶ Check ─▶ session ─▶ scenarios ─▶ calls ─▶ backend.Instance
//	nereid backend test PATH ─┘     │                                 │
//	                                └─ Report: a Result for each rule ◀┘ violations
//
// A Way determines how the backend runs: Linked in this process, or as a plugin, which package
// backend/native opens. Rules and scenarios are the same. Each scenario may find violations of any
// rule: reports of package engine are read from the log, everything else is observed from outside.
// A rule has passed if at least one scenario has tried it and none has found a violation.
//
// Requests are generated from a model's config: small numbers and short texts, three elements where
// any size is allowed. A model that needs more meaningful requests provides them (Model.Inputs).
//
// One goroutine opens, uses and closes a session. call.mu guards the responses and the end of a
// batch, journal.mu the lines of the log; nothing is called with either held.
//
// Memory: inputs belong to the suite, which counts the references that a backend must release.
// Responses are released at the end of their scenario.
package conformance
