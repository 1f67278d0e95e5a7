// Package objectstore accesses model repositories in object stores: their locations, credentials,
// objects and errors. It links no client of any store: package objectstore/providers does.
//
//	text of the operator ── Parse ──▶ Location ── Opener ──▶ Bucket ── List ──▶ Object ── Open ──▶ bytes
//	                                     └── Find ──▶ Credential ── Connect ──▶ Client: one store's protocol
//
// The forms of the URLs, the order of the credentials and the texts of the errors are Triton's. No
// error and no String contains a secret: they show neither user nor query of a URL, and only code
// and message of a store's reply.
//
// A Location and an Object are values. A Bucket is open until Close. If the store refuses the
// credentials, the bucket reads them again and replaces its Client, once for each call. A bucket's
// mu is held while its Client is replaced, and never during a call: a hanging store blocks only its
// caller, until the context of the call ends.
//
// Trust: a store is written by others. Its keys are checked first (CheckKey). A body whose length
// or version differs from the listing, or whose checksum differs from the store's, is an error. A
// broken body is resumed a few times. The caller of List bounds the number of objects and bytes:
// each returns an error.
//
// Any goroutine may call a Bucket. Each reader from Open belongs to one goroutine.
package objectstore
