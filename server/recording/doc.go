// Package recording writes clients' requests and their responses to files that `nereid replay`
// sends again. docs/record.md has the format.
//
//	front end ── Core.Target ── target.Infer ─┬─▶ models
//	              recorded models only        │ copies: inputs before, each response as it passes
//	                                          ▼
//	                                 pending ── queue ──▶ goroutine of the Recorder ──▶ DIR/<model>/<time>-<number>.record
//	                                  (bounded in number and bytes)                     Record.WriteTo, temporary name, rename
//
// Without --record there is no Recorder, and the front ends use the registry directly.
//
// A Recorder owns the files in its directory until it renames them. After that they are the
// operator's, and it removes none. It records until Close, or until the directory is full or a
// write has failed. From then on its targets are those of the registry.
//
// The disk never slows a request: requests that do not fit into the queue are dropped, and the log
// counts them.
//
// pending.mu is a leaf. It is needed since responses and the end of a request may come from
// different goroutines.
//
// Memory: a pending request has its own copies on the Go heap, which are charged as replies until
// they are written. It keeps no reference to memory of requests or responses.
package recording
