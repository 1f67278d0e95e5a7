// Package inference decodes the HTTP body of an inference, JSON followed by binary tensors or the
// raw bytes of one tensor, into a request of package infer, and encodes the response in the same
// form. Package rest owns statuses, content types and routes.
//
//	            http1.Request                 models.Target             http1.Reply
//	                 │                              ▲                        ▲
//	Codec.NewRequest ┴ ReadHead ── Decode ── Infer ─┴── Encode (─ Compress) ─┴─ Release
//	                   JSON text   tensors
//
// A Request goes through these methods in this order. A method that fails ends it; only Release
// follows. The error is the client's, an *infer.Error with Triton's text. Of several errors the one
// that Triton finds first wins, so the order of reading is part of the protocol.
//
// The handler of an endpoint makes one Request for each HTTP request, releases it in every case,
// and calls Reuse before that unless a method has panicked. A Request belongs to the goroutine of
// its connection. Requests share the pool of Requests and the codings of their Codec. `nereid
// check` calls only ReadParameters.
//
// Memory: a Request owns the tensors of its inputs until Infer has returned, and the response until
// Release. A body of at most SmallBody bytes is one block of the Go heap, which its tensors share.
// A larger tensor has a block of the Allocator, or of the Opener, which becomes real as bytes come.
// An input in a client's region is infer.Foreign until the model's version copies it. The range of
// a region for an output is held until Release. JSON texts of larger requests are in memory that
// the next Request will use, so nothing may keep a part of them. Encode returns parts of the
// Request and of the response.
//
// Trust: a client may send anything. Memory is charged to the account before it is allocated, and
// lengths are compared before anything is allocated for them.
package inference
