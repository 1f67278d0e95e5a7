// Package replies queues the replies of streams: a Queue for each stream, and the Streams of a
// front end, which share one account.
//
//	reader: Queue.Admit ─ Queue.Begin ─ Order.Join ─┐
//	a goroutine for each request:                   └ Position.Wait ─ Core ─ Queue.Add … ─ Queue.End
//	writer:                                           Queue.Next ─ the transport ─ Queue.Sent
//
// A Queue bounds and charges the waiting replies and selects the next one. A client that does not
// read first delays its own model, then uses memory up to a bound, and then loses its stream. Over
// is closed when the stream ends early; Reason returns why.
//
// Memory: a Reply owns its response until Release, or until it is settled: then the reply is an
// encoded message on the heap. Add takes ownership of a Reply, and Next lends it until Sent. Close
// releases replies that were not written, and those added later.
//
// When the account is full, Streams.relieve ends the stream with the most unread replies. The
// charge for replies is the sum of the queues' costs. Both change under Queue.mu.
//
// Locks: Streams.mu before Queue.mu. Neither is held while a response is released, and Queue.mu is
// not held while a message is encoded. Any goroutine may call Add, which waits only for models that
// may be delayed. Next, Sent and Order.Join each belong to one goroutine.
package replies
