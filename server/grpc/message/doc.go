// Package message reads and writes the messages of inferences without the generated
// code, so that the bytes of large tensors are copied once on their way in and not at
// all on their way out.
//
//	Receiver ─ Request.Receive ─ Request.Lookup ─ Request.Build ─▶ infer.Request
//	 pieces     decode            its model        checks
//
//	infer.Response ─▶ Reply.Encode ─ Encoded ─ Codec ─▶ the transport
//	                  head, loans
//
// A Receiver takes messages off the transport of the library piece by piece. Request.Receive
// decodes a ModelInferRequest as the pieces arrive, and the bytes of a tensor of more than
// BlockSize go straight into memory of the Allocator; Request.Build makes a request of it, in
// the order of Triton's checks and with its texts. Reply.Encode writes a
// ModelInferResponse or a ModelStreamInferResponse but for the bytes of large outputs:
// these are lent to the transport.
//
// States: a Request receives a message, is looked up, built and executed, and is released in
// every case. What fails ends it: with a *NoRoom for want of memory, which leaves the stream as it
// was, with errUnparsable, or with an *infer.Error in Triton's words. A Reply is encoded once.
//
// Callers: the handlers of package grpc, each for its own RPC; package replies for the messages
// of streams.
//
// The messages of other calls are decoded by generated code. A Plan, which is made of a message's
// descriptor, tells before what that takes.
//
// Memory: a Request owns what was allocated and charged for its message, until Release; it
// grows with what has arrived, not with what was announced. Inputs in clients' regions are
// infer.Foreign, and their copies, once there are some, the Request's too; outputs that are
// wanted in a region are written there by Put, before the reply is encoded. A Reply that was encoded
// owns its response: a loan releases it when the transport has let go of its last buffer,
// or when the connection has forgotten them and the garbage collector finds the loan. The
// transport reads these bytes in goroutines of its own.
//
// Trust: a client's bytes are accepted where proto.Unmarshal accepts them, and else
// refused. Lengths are compared with what is left of the message before they are used.
//
// A Receiver, a Request and a Reply belong to one goroutine at a time; nothing here has a
// lock. A loan alone is shared, as the transport gives its buffers back from goroutines of the
// library: its count is atomic.
//
// Why this is written by hand, and what generated code would cost, is in
// docs/decisions/0018-grpc-codec.md.
package message
