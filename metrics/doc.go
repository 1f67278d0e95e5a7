// Package metrics defines every metric of the server: its name, help text and labels. Families that
// begin with nv_ are Triton's, families that begin with nereid_ are this server's. Models can add
// custom metrics to the same page.
//
//	model.go       one Model for each loaded version: requests, executions, times
//	cache.go       the response cache
//	custom.go      families of models; a Holder for each life of a stub
//	stages.go      histograms of the stages of a version's requests
//	processes.go   processes of instances
//	machine.go     processors and memory
//	gpus.go        GPUs
//	reading.go     values that are read again after Config.Interval
//	collect.go     the families of models
//	exposition.go  the page, in the format of package exposition
//
// A Registry lives as long as its server. Model returns the counters of a version and Model.Close
// removes them; loads with the same labels share one Model. A series of a custom metric lives until
// no life holds it. A series of an unloaded model continues when the model is loaded again, as in
// Triton.
//
// The registry itself writes all families whose size grows with the number of models, from labels
// that were formatted at load time. The Prometheus library gathers the rest. The families of this
// server only have samples of versions with data, while Triton's have samples of all versions.
//
// Locks: Registry.mu guards the list of models; custom.mu guards families, series and their
// holders. A histogram, machine and each reading have their own lock. No two locks are held at
// once, and none while a line is written, so a slow reader of the page delays no model.
//
// Any goroutine may count and render. A Holder is used by one goroutine at a time: backend/process
// holds the receive lock of its channel. Gauge is called before the first model creates a metric,
// because it reserves the name without a lock.
//
// Memory: counting is atomic and does not allocate; histograms and summaries take a lock.
// Config.ModelSeries, Config.Series and Config.ModelBytes limit the metrics of models.
package metrics
