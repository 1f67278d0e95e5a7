// Package server speaks the KServe protocol v2, with Triton's extensions, over
// HTTP and gRPC, and owns every status code. Both front ends ask the rooms below
// through Core.
//
// The HTTP front end stands on net/http, without its mux: Triton routes on the
// raw path.
//
//	HTTP.Run ── listener (counts, refuses) ── conn (deadlines) ── net/http
//	                                                                  │
//	ServeHTTP ── route ── restricted? ── content type ── method ── handler
//
// An inference goes through inferCall: the head of the body is read and its
// syntax checked (jsonText), each input is decoded from the head or read from
// the body into the memory that the stubs see, Core infers, and the response is
// written from where its bytes lie.
//
// Ownership: an inferCall owns the memory of its inputs until Core.Infer has
// returned, and the one response until its last byte is written. A body of at
// most smallBody bytes is one block of the Go heap, which its tensors keep; a
// larger tensor has a block of the Allocator; JSON texts of larger requests lie
// in memory that the next request will use, so nothing may keep a part of them.
//
// Trust: a client may send anything, at any speed. Memory is charged to a Budget
// before it is taken, lengths are compared before anything is allocated for
// them, and every wait for a client has a deadline that moves on only while the
// client does.
package server
