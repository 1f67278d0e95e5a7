// Package amplification sends the worst messages that the descriptions of the server allow to a
// server in this process, and compares its live heap with its account. The messages are generated:
// from the protobuf descriptors, from the OpenAPI document that the server serves, from the tables
// of endpoints in docs, and from the golden frames of package ipc. A new call, field, endpoint or
// kind of frame is covered as soon as it is described.
//
//	test ── server, PeakHeap ◀── sockets ── client: the same binary, which generates and sends
//	  └──────────── one line for each volley ────▶ ┘
//
// The package has no code but tests.
package amplification
