// Package env is the subcommand `nereid env`: what an operator does with execution environments while no
// server need run.
//
//	Run ── commands ─┬─ list, prune, verify ── cache.Cache
//	                 └─ doctor ── conda.Examine, of an archive after cache.Cache
//
// Each command reads its own flags, prints to stdout what was asked for, or JSON with --json, and to stderr what went
// wrong. Exit status: 0 all is well, 1 something is not (damage, an environment that cannot be removed), 2 the command line is
// not understood.
//
// States, locks, goroutines: none of its own. SIGINT and SIGTERM end a command early, with status 1; package cache
// leaves nothing half-done.
//
// Callers: package cli, once.
//
// Memory: nothing is kept.
package env
