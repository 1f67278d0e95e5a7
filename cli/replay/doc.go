// Package replay is the subcommand `nereid replay`: it sends recorded requests to a running server and compares what they are
// answered with. docs/record.md describes it for users, and package recording the files.
//
//	Run ── recording.Files ── for each: Open ── sender ─┬─ http  ── answers ── compare ── report
//	                                                    └─ grpc, unary or a stream
//
// One request is under way at a time, in the order in which they were recorded: sequences depend on it.
//
// Exit status: 0 all are answered as before, 1 some are not, 2 the command line is not understood.
//
// States, locks: none. Goroutines: those of the transports, which end with the senders.
//
// Callers: package cli, once.
//
// Memory: one record and its answers at a time.
package replay
