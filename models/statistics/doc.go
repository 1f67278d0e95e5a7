// Package statistics counts what the versions of models do: for the statistics
// endpoint of the protocols, and for the metrics.
//
// A Version is made when a version of a model is loaded. It is the Observer of the
// version's scheduler and hears of each request that was accepted, once: executed, failed, answered by
// the response cache, or looked up there in vain before it was executed. Proto shows
// the counts at any time.
//
// What an instance on a GPU executes counts in metrics with the UUID of the GPU, and here in
// the version's own numbers as all else.
//
// Locks: Version.mu is a leaf and is held for additions alone; the metrics are told
// after it is given back. An Execution is read during the call and not kept.
package statistics
