// Package backends is the subcommand `nereid backend`: what authors of backends in Go do with their programs.
//
//	Run ── test PATH ── conformance.Check ── plugin ── native.Backend ── process.Supervisor
//
// test runs the suite of package sdk/conformance over the program, in the processes and with the protocol that a server has, but
// without one: no port is opened, and no repository is read but the models that the command line names.
//
// Exit status: 0 all rules are kept, 1 a rule is broken or the suite cannot be run, 2 the command line is not understood.
//
// States, locks: none. SIGINT and SIGTERM end a suite early, with status 1; its processes are ended then.
//
// Callers: package cli, once.
//
// Memory: a pool of shared memory for requests, for as long as the suite runs.
package backends
