// Package env is the subcommand `nereid env`: maintenance of execution environments without a
// server.
//
//	Run ── commands ─┬─ list, prune, verify ── cache.Cache
//	                 └─ doctor ── conda.Examine, of an archive after cache.Cache
//
// Each command parses its own flags, writes its result (or JSON, with --json) to stdout and errors
// to stderr. The exit status is 0 if all is well, 1 for a problem such as damage or an environment
// that cannot be removed, and 2 for a bad command line. SIGINT and SIGTERM end a command early,
// with status 1; package cache leaves nothing half-done.
package env
