// Package budget keeps one account of all memory that clients make the server
// take, in its own heap, in the pool of requests and in the stubs' arenas.
//
//	limit ┌──────────────────────────────┬───────┬───────┬───┬───────┐
//	      │ common: first come, first    │ json  │replies│ … │ arenas│
//	      │ served, up to a kind's share │ own   │ own   │   │ own   │
//	      └──────────────────────────────┴───────┴───────┴───┴───────┘
//
// Each Kind of memory has bytes of its own, which no other kind can take, and a
// share of the limit that it cannot go beyond. So clients that fill one kind
// are refused, and requests that need the others go on.
//
// Memory is charged before it is taken and given back when it is free again. A
// charge never waits: Take fails with an *infer.Error, of code Unavailable where
// the memory is in use, and InvalidArg where the kind may never have that much. Before
// it fails it asks the owners of free memory (OnShort) to give that back.
//
//	account := budget.New(budget.Config{Limit: limit})
//	if err := account.Take(budget.Replies, n); err != nil {
//		return err // nothing was charged
//	}
//	defer account.Give(budget.Replies, n)
//
// A Charge travels with one piece of work: a request, a reply, a load. Decoders, encoders,
// templates and queues take it as an argument and grow it before they allocate, with Make,
// Append, Grow and Text where they can. Settle gives all of it back at once.
//
// A Holder is an owner that outlives a Charge: a connection, a stream, the life of a model's
// process. Charges name their Holder, so the account can say who has most, and a Holder with
// bounds is refused alone, while others go on.
//
// Limits bounds values that no client needs to be large, such as the id of a request.
//
// Keep compares the account with the memory that the process really has. While memory is short
// (Admit, Pressed), bodies of more than 64 KiB are refused; where that is not enough, the Holder
// with most memory is ended, one at a time. Keep also returns free memory to the system when the
// process is idle, and sets the memory limit of the Go runtime by the charged bytes.
//
// The Go heap does not shrink when memory of it is freed. Large bytes of the
// heap that are given back stay on the account as Released until Keep has seen
// that the runtime has reused them or has returned them to the system, which it
// makes it do where they are many.
//
// Locks: there is none. Take and Give cost one or two atomic operations, and allocate
// nothing but the error of a refusal. The figures of several kinds (Total, the texts of
// errors) are read one after the other and may be a moment apart; Take goes beyond no
// limit at any moment, Must and Move may.
//
// Callers: any goroutine may charge. OnShort is called before anything is charged; the
// functions that it is given run in the goroutine that charges. One goroutine runs Keep.
// A Charge belongs to one request or reply, which one goroutine at a time serves.
package budget
