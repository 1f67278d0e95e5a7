// Package cli is the command nereid: it serves Triton model repositories of Python models over HTTP
// and gRPC. Its command line is that of tritonserver. Package entry chooses its form by the name of
// the program and the first argument, and package flags parses it. cli owns signals, the startup
// tables and the exit status; the server itself is package nereid in the root.
//
// Each subcommand is a package below cli. Packages completion and manual use the descriptions of
// the others (describe). The command serve is here because it starts the same server (local.go).
//
//	Main ── run ── flags.Parse ── Options ── serve ── nereid.New ── Load ── tables ── Listen ── Run ── exit status
//	        └─ commands                          └─ watchSignals
//
// The first SIGINT or SIGTERM ends the context graceful, and the server drains. A second signal,
// more than signalBurst later, ends the context abrupt, and the process exits with status 1 at once
// (endAtOnce). Status 0 means that all requests in flight were completed and all models unloaded
// within --exit-timeout-secs; anything else is 1.
//
// Main's goroutine runs the server. One goroutine waits for signals, and one ends the process after
// a second signal. Options do not change once they are parsed.
package cli
