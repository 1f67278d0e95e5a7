// Package cache keeps responses to repeated requests: Triton's local response cache.
//
// A Cache has one budget of bytes for all models and evicts the least recently used entry first.
// Each loaded version has its own Space, whose responses no other version sees and which ends with
// the version: responses of an earlier load are not found again.
//
//	Space.Lookup(request) ─▶ Hit ─────────────▶ response
//	         │ Miss{key}
//	         ▼
//	     the model ─▶ Space.Insert(miss, response)
//
// The registry uses a Version, which also counts misses and logs the first response that is too
// large.
//
// Ownership: an entry owns copies of its outputs. The receiver of a hit has references to these
// copies and releases the response like any other. The bytes stay until then, even if the entry is
// evicted earlier. They are never written.
//
// Entries do not hold the inputs of their requests, so two requests with one Key count as the same;
// see docs/decisions/0010.
//
// Cache.mu is a leaf. Bytes are neither hashed nor copied under it.
package cache
