// Package nereid assembles a whole inference server from Options: model repository, Python backend,
// registry, response cache, memory account and front ends. Command nereid parses flags and calls
// it. A Go program that embeds a server does the same with its own Options.
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
//	New ─▶ made ── Load ─▶ loaded ── Listen ─▶ listening ── Run ─▶ serving ── ctx ends ─▶ ended ──
//	Close
//
// Run calls Load and Listen unless the caller has. A caller that needs the address of a port 0, or
// wants to inspect the models before the first request, calls them itself, in this order. A loaded
// server that never calls Run must call Shutdown. Close comes last in every case, once.
//
// # Concurrency
//
// One goroutine takes a Server through its states. Kill, Registry and the addresses may be used
// from any goroutine. Server.mu guards the contexts that Kill cancels; no other lock is taken while
// it is held.
//
// # The process around it
//
// A Server starts Python processes. It reads no flags. From the environment it reads PATH,
// LD_LIBRARY_PATH to find a CUDA driver, and the variables for cache and temporary directories, in
// which it keeps the stub's files and uploads; models inherit the rest. It handles no signal except
// SIGCHLD, and prints only to Options.Logger, Stdout and Stderr. Three settings affect the whole
// process: it becomes the subreaper of processes that models start, Options.SoleParent makes the
// server reap every orphan that becomes its child, and Options.LimitGoHeap sets the memory limit of
// the Go runtime.
package nereid
