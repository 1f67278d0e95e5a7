// Package recording keeps requests of clients, and what they were answered with, in files that `nereid replay` sends again.
// docs/record.md has the format.
//
//	front end ── Core.Target ── target.Infer ─┬─▶ models
//	              recorded models only        │ copies: inputs before, each response as it passes
//	                                          ▼
//	                                 pending ── queue ──▶ goroutine of the Recorder ──▶ DIR/<model>/<time>-<number>.record
//	                                  (bounded in number and bytes)                     Record.WriteTo, temporary name, rename
//
// Without --record there is no Recorder, and the front ends ask the registry itself.
//
// A Recorder owns its directory's files from their temporary names to the rename; afterwards they are the operator's, and it removes
// none. It is open until Close, and full for good once the directory holds what it may, or a write has failed: then
// targets are those of the registry again.
//
// A request is never slowed by the disk: what does not fit into the queue is dropped, and counted in the log.
//
// Locks: pending.mu, a leaf, as responses and the end of a request may come from different goroutines.
//
// Callers: package nereid makes and closes one; front ends use the Core that Around returns. The format (Record, Read) is for
// commands, too.
//
// Memory: a pending request has copies of its own on the Go heap, which are charged as replies until they are written. It keeps no
// reference to memory of requests or responses.
package recording
