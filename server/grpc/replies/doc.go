// Package replies has what waits to be written to the clients of streams: the Queue of
// each stream, and the Streams of a front end, which share one account.
//
//	reader: Queue.Admit ─ Queue.Begin ─ Order.Join ─┐
//	a goroutine for each request:                   └ Place.Wait ─ Core ─ Queue.Add … ─ Queue.End
//	writer:                                           Queue.Next ─ the transport ─ Queue.Sent
//
// A Queue bounds what waits, charges it, and decides what is written next; a client that
// does not read costs its own model time, then memory up to a bound, and then its stream.
// Over is closed when the stream ends before its time, Reason says why.
//
// Memory: a Reply owns its response until Release, or until it is settled: then it is its
// message, on the heap. Add takes a Reply over, Next lends it until Sent; Close releases
// what was not written, and what is added later.
//
// Where the account is full a stream is ended, the one with most unread (Streams.relieve). All
// that is charged for replies is the cost of some Queue, and both change under Queue.mu.
//
// Locks: Streams.mu before Queue.mu. Neither is held while a response is released, and
// Queue.mu is not while a message is made. Add may be called by any goroutine and waits
// only for models that may be kept waiting; Next, Sent and the Place of the next request
// belong to one goroutine each.
package replies
