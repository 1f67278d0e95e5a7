// Package native is the server's side of backends that are plugins: programs built on package sdk, each instance of a model in a
// process of its own. Package process hosts these processes; this package says which program runs there, and asks it for
// the handshake of hashicorp/go-plugin before the protocol of stubs begins.
//
//	Backend ──▶ program, one for each model version: implements process.Program
//	   │          └─ greeting, one for each start of a process: go-plugin's client, and its runner
//	   └─▶ known, one for each name of a backend: its settings, fixed when a model first names it
//
// package models/version finds the program (backend.Env.Plugin). program.Check looks at the file (check.go). Start starts the process in
// our roster of children, so that its process group, mark, lifeline, limits and end are those of package process, and waits for the
// line of the handshake (greeting.go). The process has, until then, a pipe of its own as stdout, and after it the outputs that
// process.Files has. Of go-plugin nothing but the handshake is used: cookie, versions, time limit. The address of the line is not dialled, and
// Client.Kill is never called: package process ends the process.
//
// Lives: New starts nothing. Start returns with a process whose handshake is over, or with an error when the process has been
// reaped; it ends early with its context. go-plugin's goroutines end when the process has taken its outputs, which bounds them
// by the time limit of the handshake: then the pipe is closed under them.
//
// Locks: Backend.mu and runner.mu are leaves.
//
// Callers: package models opens model versions by backend.Backend, several at once. Package process calls a program from the
// goroutines of its instances, several at once.
//
// Memory: the bodies that a program makes are on the Go heap and belong to the caller. Package
// process owns the memory shared with the processes.
package native
