// Package statistics counts the work of model versions, for the protocols' statistics endpoint and
// for the metrics.
//
// A Version is made when a version of a model is loaded. It is the Observer of the version's
// scheduler and receives each accepted request once: executed, failed, answered by the response
// cache, or missed there before it was executed. Proto shows the counts at any time.
//
// Executions of an instance on a GPU count in the metrics with the GPU's UUID, and here in the
// version's totals.
//
// Locks: Version.mu is a leaf and is held only for additions; the metrics are updated after it is
// released. An Execution is read during the call and not kept.
package statistics
