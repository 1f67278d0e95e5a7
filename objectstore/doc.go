// Package objectstore says what a model repository in an object store is to the rest of the server: where it is, whose credentials
// open it, which objects it has, and what goes wrong. It links no client of any store: package objectstore/providers does.
//
//	text of the operator ── Parse ──▶ Location ── Opener ──▶ Bucket ── List ──▶ Object ── Open ──▶ bytes
//	                                     └── Find ──▶ Credential ── Connect ──▶ Client: one store's protocol
//
// The forms of the URLs, the order of the credentials and the texts of the errors are Triton's. No error and no String has a
// secret: of a URL they show neither user nor query, and of what a store answers its code and message alone.
//
// States: a Location and an Object are values. A Bucket is open until Close; a call after that is a bug of the caller. Where the
// store refuses the credentials, the bucket reads them again and replaces its Client, once for each call.
//
// Locks: a bucket's mu is held while its Client is replaced, and never while a call is on its way: a store that hangs holds the
// goroutine of its caller alone, until the context of the call ends.
//
// Trust: a store is written by others. Its keys are checked before anybody sees them (CheckKey); a body that is longer or
// shorter than the listing said, that is another version by now, or whose checksum is another than the store tells, is an error. A body that breaks off is read on from there, a
// few times. How many objects and bytes there may be is for
// the caller of List to bound: each returns an error.
//
// Any goroutine may call a Bucket. Readers that Open returned belong to one goroutine each.
package objectstore
