// Package batching holds what a model's config says about batches: how large they
// are and how long they wait (Rules), what happens to requests that wait for long
// (Policy), which requests fit together (Alike), and which of these a strategy
// excludes (Strategy).
//
// Nothing here executes or waits: scheduler.Batcher and the sequence batcher ask.
// Rules, Policy and Alike do not change after they are made, so any goroutine may
// use them without a lock. The function that Strategy.Begin returns belongs to the
// batch that is being formed, and its caller holds the scheduler's lock.
//
// Alike and Strategy read the tensors of requests and keep no reference to them.
package batching
