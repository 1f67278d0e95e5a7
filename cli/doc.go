// Package cli is the command nereid: it serves Triton model repositories of Python models over HTTP and
// gRPC. Its command line is that of tritonserver; entry below it decides by the name of the program and
// the first argument which form that has, and flags below it reads it. It owns signals, the start-up tables and the exit
// status; the server itself is package nereid in the root, and logs below it writes what is printed. Subcommands are
// packages below it, each chosen by the first argument alone; completion and manual are made of what the
// others tell of themselves (describe). The command serve is here, since it starts the same server (atdesk.go).
//
//	Main ── run ── flags.Parse ── Options ── serve ── nereid.New ── Load ── tables ── Listen ── Run ── exit status
//	        └─ commands                          └─ watchSignals
//
// States: a process parses, loads, serves and drains. The first SIGINT or SIGTERM ends the
// context graceful, which takes it from loading or serving to draining; a second one, which comes
// later than signalBurst after the first, ends the context abrupt, and the process with status 1
// at once (endAtOnce). Status 0 means that all requests in flight have been answered and all
// models unloaded within --exit-timeout-secs; 1 is everything else.
//
// Goroutines: that of Main, which runs the server; one that waits for signals; one, after a
// second signal, that ends the process whatever Main waits for. Options are not changed once they
// are parsed. There is no lock.
//
// Callers: cmd/nereid, and main functions of servers with backends linked in. Tests call run, with arguments, environment and
// outputs of their own.
//
// Memory: nothing is kept that grows.
package cli
