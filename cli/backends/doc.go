// Package backends is the subcommand `nereid backend`, for authors of backends in Go.
//
//	Run ── test PATH ── conformance.Check ── plugin ── native.Backend ── process.Supervisor
//
// test runs the suite of package sdk/conformance on a program, with a server's processes and
// protocol but without a server: it opens no port, and reads no models except those on the command
// line.
//
// The exit status is 0 if the program follows all rules, 1 if it breaks a rule or the suite cannot
// run, and 2 for a bad command line. SIGINT and SIGTERM end the suite and its processes early, with
// status 1.
//
// A pool of shared memory for requests exists while the suite runs.
package backends
