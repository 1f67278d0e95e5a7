// Package batching interprets the batch settings of a model's config: the sizes and delays of
// batches (Rules), the treatment of requests that wait long (Policy), which requests fit together
// (Alike), and which of them a strategy excludes (Strategy). The schedulers apply the result.
//
// Rules, Policy and Alike do not change after they are made, so they need no lock. The function
// that Strategy.Begin returns is called with the scheduler's lock held.
package batching
