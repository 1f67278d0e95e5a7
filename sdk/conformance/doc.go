// Package conformance checks that a backend keeps the rules of docs/backends.md: of the hooks, of ownership, of inputs and outputs. It
// stands where a server's scheduler stands, gives instances batches as servers do, and watches what comes back.
//
//	Run (a Go test) ──────────┐
//	                          ├─▶ Check ─▶ session ─▶ scenarios ─▶ calls ─▶ backend.Instance
//	nereid backend test PATH ─┘     │                                 │
//	                                └─ Report: a Result for each rule ◀┘ violations
//
// A Way says how the backend runs: Linked in this process, or as a plugin, which package backend/native opens. The rules are the same,
// and so are the scenarios. Each scenario may find violations of any rule: what package engine says of a backend's faults is
// read from the log, all else is seen from outside. A rule has passed if a scenario has tried it and none has found a violation.
//
// Requests are made of a model's config: small numbers and short texts, three elements where any size will do. A model whose
// requests have to make more sense brings its own (Model.Inputs).
//
// States: a session is opened, used and closed by one goroutine.
//
// Locks: call.mu guards what Send and Done of a batch have brought, from any goroutine; journal.mu the lines of the log. Neither is held
// while anything is called.
//
// Memory: inputs are the suite's, counted in loans, which a backend has to give back. Responses are released at the end of their scenario.
package conformance
