// Package budget keeps one account of all memory that clients cause the server to allocate: in its
// own heap, in the pool of requests and in the stubs' arenas.
//
//	limit ┌──────────────────────────────┬───────┬───────┬───┬───────┐
//	      │ common: first come, first    │ json  │replies│ … │ arenas│
//	      │ served, up to a kind's share │ own   │ own   │   │ own   │
//	      └──────────────────────────────┴───────┴───────┴───┴───────┘
//
// Each Kind of memory has its own part, which no other kind can take, and a maximum share of the
// limit. So clients that fill one kind are rejected, and requests that need the others continue.
//
// Memory is charged before it is allocated, and the charge is given back when the memory is free
// again. A charge never waits: Take fails with an *infer.Error, of code Unavailable if the memory
// is in use, and InvalidArg if the kind may never have that much. Before it fails it asks the
// owners of free memory (OnShort) to give that back.
//
//	account := budget.New(budget.Config{Limit: limit})
//	if err := account.Take(budget.Replies, n); err != nil {
//		return err // nothing was charged
//	}
//	defer account.Give(budget.Replies, n)
//
// A Charge travels with one piece of work: a request, a reply, a load. Decoders, encoders,
// templates and queues take it as an argument and grow it before they allocate, with Make, Append,
// Grow and Text where they can. Settle gives everything back at once.
//
// A Holder is an owner that outlives a Charge: a connection, a stream, the life of a model's
// process. Charges name their Holder, so the account knows which Holder has most memory. If a
// Holder exceeds its own limits, only its charges are refused.
//
// Limits has limits for values that no client needs to be large, such as the id of a request.
//
// Keep compares the account with the memory that the process really has. While memory is short
// (Admit, Pressed), bodies of more than 64 KiB are rejected. If that is not enough, the Holders
// with most memory are ended, one at a time. Keep also returns free memory to the system when the
// process is idle, and sets the memory limit of the Go runtime by the charged bytes.
//
// The Go heap does not shrink when memory is freed. Large heap memory that is given back stays on
// the account as Released until Keep has seen that the runtime has reused it or returned it to the
// system. If there is much of it, Keep makes the runtime return it.
//
// Charging takes no lock. Take and Give cost one or two atomic operations, and allocate only the
// error of a refusal. The figures of several kinds (Total, error texts) are read one after the
// other and may be inconsistent. Take never exceeds a limit; Must and Move may.
//
// Any goroutine may charge. OnShort is called before anything is charged; its functions run in the
// goroutine that charges. One goroutine runs Keep. A Charge belongs to one request or reply, which
// one goroutine at a time serves.
package budget
