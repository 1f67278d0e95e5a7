// Package message decodes and encodes inference messages without generated code, so that the bytes
// of large tensors are copied once when received and not at all when sent.
//
//	Receiver ─ Request.Receive ─ Request.Lookup ─ Request.Build ─▶ infer.Request
//	 pieces     decode            its model        checks
//
//	infer.Response ─▶ Reply.Encode ─ Encoded ─ Codec ─▶ the transport
//	                  head, loans
//
// A Receiver reads messages from the library's transport piece by piece. Request.Receive decodes a
// ModelInferRequest as the pieces arrive. Tensors larger than BlockSize go straight into memory of
// the Allocator. Request.Build makes an infer.Request, with Triton's checks, in their order and
// with their texts. Reply.Encode writes a ModelInferResponse or a ModelStreamInferResponse, and
// lends the bytes of large outputs to the transport.
//
// States: a Request is received, looked up, built, executed, and always released. It fails with a
// *OutOfMemory if memory is short, which leaves the stream usable, with errUnparsable, or with an
// *infer.Error in Triton's words. A Reply is encoded once.
//
// Generated code decodes the messages of all other methods. A Plan, computed from a message's
// descriptor, gives the memory that this needs beforehand.
//
// Memory: a Request owns the memory that was allocated and charged for its message, until Release.
// It grows with the bytes that have arrived, not with the announced length. Inputs in clients'
// regions are infer.Foreign; the Request also owns their copies. Put writes outputs to regions
// before the reply is encoded. An encoded Reply owns its response. It is released when the
// transport has freed the last buffer, or when the garbage collector finds that a closed connection
// has dropped them. The transport reads these bytes in its own goroutines.
//
// Trust: a client's bytes are accepted if proto.Unmarshal accepts them. Lengths are compared with
// the rest of the message before they are used.
//
// A Receiver, a Request and a Reply belong to one goroutine at a time, and there are no locks. Only
// the count of lent buffers is atomic, because the library's goroutines return them.
//
// docs/decisions/0018-grpc-codec.md explains why this is written by hand, and the cost of generated
// code.
package message
