// Package server has what every front end of the KServe protocol v2 needs: Core, through
// which they ask the packages below, the memory of requests (Allocator, Opener),
// restrictions, header forwarding, classification, log settings, and the texts of what is
// refused. It knows no protocol. The front ends import it:
//
//	rest ─▶ http1 ─▶ connections         over HTTP, with the JSON of jsontext
//	grpc ──────────▶ connections         over gRPC
//
// and ask package tracing which requests are traced.
//
// Package nereid makes one set of Parts for all of them. The functions here are called by
// the goroutines that serve requests.
//
// All of them are made from the same Parts:
//
//	account := budget.New(budget.Config{})
//	parts := server.Parts{Core: registry, Allocate: allocate, Open: open, Memory: account, Logging: settings}
//
// State: nothing here changes after it has been made, but for what a caller gives Names
// to remember; there is no lock. Restrictions and Forwarding may be used by all requests
// at once.
//
// Ownership: a front end owns the memory of a request's inputs until Infer has returned,
// and each response until its last byte is written; then it releases them.
package server
