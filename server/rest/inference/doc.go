// Package inference decodes the HTTP body of an inference, JSON with binary tensors behind
// it or the raw bytes of one tensor, into a request of package infer, and encodes the
// response in the same form. Statuses, content types and routes are package rest's.
//
//	            http1.Request                 models.Target             http1.Reply
//	                 │                              ▲                        ▲
//	Codec.NewRequest ┴ ReadHead ── Decode ── Infer ─┴── Encode (─ Compress) ─┴─ Release
//	                   JSON text   tensors
//
// States: a Request goes through these methods in this order. A method that fails ends it;
// only Release follows, and the error is the client's, an *infer.Error with Triton's text.
// Errors of a request win in the order in which Triton finds them, so which part is read
// first is part of the protocol.
//
// Callers: `nereid check` calls ReadParameters alone. The handler of an endpoint, in the goroutine of its connection, makes one
// Request for each HTTP request, releases it in every case, and calls Reuse before that
// unless a method has panicked. A Request belongs to that goroutine. Requests share the pool
// of Requests and the codings of their Codec; there is no lock.
//
// Memory: a Request owns the tensors of its inputs until Infer has returned, and the one
// response until Release. A body of at most SmallBody bytes is one block of the Go heap,
// of which its tensors are parts; a larger tensor has a block of the Allocator, or of the
// Opener, which becomes real as bytes come. An input in a client's region is infer.Foreign
// until the model's version copies it; the range of a region that an output goes to is held
// until Release. JSON texts of larger requests lie in memory
// that the next Request will use, so nothing may keep a part of them. What Encode returns
// are parts of the Request and of the response.
//
// Trust: a client may send anything. Memory is charged to the account before it is taken,
// and lengths are compared before anything is allocated for them.
package inference
