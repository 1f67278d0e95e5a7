// Package cache keeps responses of models that are asked the same more than
// once: Triton's local response cache.
//
// A Cache has one budget of bytes for all models; the entry used longest ago goes
// first. Each loaded version has a Space of its own in it, whose responses
// no other caller is given and which ends with the version: what an earlier load of
// the model has answered is not found again.
//
//	Space.Lookup(request) ─▶ Hit ─────────────▶ response
//	         │ Miss{key}
//	         ▼
//	     the model ─▶ Space.Insert(miss, response)
//
// The registry asks by way of a Version, which also counts misses and logs the first
// response that is too large.
//
// Ownership: an entry owns copies of its outputs. The receiver of a hit has
// references to these copies and releases the response as any other; the bytes
// live until then, also when the entry is evicted meanwhile. They are never written.
//
// Keys: see Key. Entries do not hold the inputs that they answer, so two
// requests of one key are taken for the same; see docs/decisions/0010.
//
// Locks: Cache.mu is a leaf. Bytes are neither hashed nor copied under it.
package cache
