// Package replay is the subcommand `nereid replay`: it sends recorded requests to a running server
// and compares the responses with the recorded ones. docs/record.md describes it for users, and
// package recording the files.
//
//	Run ── recording.Files ── for each: Open ── flight ── sender ─┬─ http  ── answers ── compare ── report
//	                                                              └─ grpc, unary or a stream
//
// By default one request is in flight at a time, in recorded order. With --concurrency there are
// more; requests of one sequence still keep their order.
//
// The exit status is 0 if all responses match, 1 if some do not, and 2 for a bad command line.
//
// Each recorded request in flight has a goroutine, for which the command waits. A channel for each
// sequence signals that its last request is done. Memory holds only the requests in flight and
// their responses.
package replay
