// Package server has the parts that all front ends of the KServe protocol v2 share: Core, through
// which they call the packages below, the memory of requests (Allocator, Opener), restrictions,
// header forwarding, classification, log settings, and error texts. It knows no protocol. The front
// ends import it:
//
//	rest ─▶ http1 ─▶ connections         over HTTP, with the JSON of jsontext
//	grpc ──────────▶ connections         over gRPC
//
// Package nereid creates one set of Parts for all of them:
//
//	account := budget.New(budget.Config{})
//	parts := server.Parts{Core: registry, Allocate: allocate, Open: open, Memory: account, Logging: settings}
//
// Restrictions and Forwarding do not change and may be used by all requests at once.
//
// Ownership: a front end owns the memory of a request's inputs until Infer has returned, and each
// response until its last byte is written. Then it releases them.
package server
