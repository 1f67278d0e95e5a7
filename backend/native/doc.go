// Package native is the server's side of plugins: backends that are separate programs built on
// package sdk, with one process per instance of a model. Package process hosts these processes.
// This package chooses the program, and starts it with the handshake of hashicorp/go-plugin, before
// the protocol of stubs begins.
//
//	Backend ──▶ program, one for each model version: implements process.Program
//	   │          └─ greeting, one for each start of a process: go-plugin's client, and its runner
//	   └─▶ known, one for each name of a backend: its settings, fixed when a model first names it
//
// Package models/version finds the program (backend.Env.Plugin), and program.Check checks the file
// (check.go). Start starts the process among the server's other children, so that package process
// manages its process group, mark, lifeline, limits and end, and waits for the handshake line
// (greeting.go). Until the handshake is over, the stdout of the process is a separate pipe; after
// that it is the output in process.Files. Only the handshake of go-plugin is used: cookie, versions
// and time limit. The server does not dial the address of the line and never calls Client.Kill,
// because package process ends the process.
//
// New starts nothing. Start returns a process that has completed the handshake, or an error after
// the process has been reaped. It returns early if its context is cancelled. go-plugin's goroutines
// end when the process has taken over its outputs, or at the handshake's time limit, when the pipe
// is closed.
//
// Locks: Backend.mu and runner.mu are leaves.
//
// Package models opens several model versions at once through backend.Backend. Package process
// calls a program from the goroutines of several instances at once.
//
// Memory: the bodies that a program returns are on the Go heap and belong to the caller. Package
// process owns the memory that it shares with the processes.
package native
