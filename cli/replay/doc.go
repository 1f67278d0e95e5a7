// Package replay is the subcommand `nereid replay`: it sends recorded requests to a running server and compares what they are
// answered with. docs/record.md describes it for users, and package recording the files.
//
//	Run ── recording.Files ── for each: Open ── flight ── sender ─┬─ http  ── answers ── compare ── report
//	                                                              └─ grpc, unary or a stream
//
// One request is under way at a time, in the order in which they were recorded. With --concurrency there are more, and
// only those of one sequence keep their order, on which their answers depend.
//
// Exit status: 0 all are answered as before, 1 some are not, 2 the command line is not understood.
//
// States, locks: none; a channel for each sequence says that its last record is over. Goroutines: one for each record under way, for which the
// command waits, and those of the transports, which end with the senders.
//
// Callers: package cli, once.
//
// Memory: the records under way and their answers.
package replay
