// Package nereid wires a whole inference server from Options: model repository,
// Python backend, registry, response cache, memory account and front ends. Command
// nereid parses flags and calls it; a Go program that embeds a server does the same
// with Options of its own.
//
//	options := nereid.Defaults()
//	options.Repository.Paths = []string{"/srv/models"}
//	server, err := nereid.New(options)
//	if err != nil {
//		return err
//	}
//	defer server.Close()
//	return server.Run(ctx)
//
// # States
//
//	New ─▶ made ── Load ─▶ loaded ── Listen ─▶ listening ── Run ─▶ serving ── ctx ends ─▶ ended ── Close
//
// Run does Load and Listen itself unless the caller has. A caller that wants to know
// the address of a port 0, or to look at the models before the first request, calls
// them one by one, in this order. A loaded server that is not going to Run is ended
// by Shutdown. Close comes last in every case, and once.
//
// # Callers and locks
//
// One goroutine takes a Server through its states. Kill, Registry and the addresses
// may be used from any goroutine. Server.mu guards what Kill ends; no other lock is
// taken while it is held.
//
// # The process around it
//
// A Server starts Python processes. It reads no flags, and of the environment PATH,
// LD_LIBRARY_PATH, where it looks for a CUDA driver, and
// what names the folders for cache and temporary files, in which it keeps the stub's
// files and uploads; models inherit the rest. It handles no signal but SIGCHLD, and
// prints to Options.Logger, Stdout and Stderr alone. Three things hold for the whole
// process: it becomes the subreaper of what models start, Options.SoleParent has the
// server reap every orphan that comes home to it, and Options.LimitGoHeap sets the
// memory limit of the Go runtime.
package nereid
