// Package metrics holds every metric of the server: its name, help text and labels. The
// families that begin with nv_ are Triton's, those that begin with nereid_ are this
// server's own. It also holds the custom metrics that models make, which share the page.
//
//	model.go       one Model for each version that is loaded: requests, executions, times
//	cache.go       hits and misses of a version, and the cache's own figures
//	custom.go      families of models; a Holder for each life of a stub
//	stages.go      histograms of the stages of a version's requests
//	processes.go   what the processes of instances take, read again like machine.go's
//	machine.go     processors and memory, read again when they are older than Config.Interval
//	gpus.go        GPUs, likewise
//	reading.go     what is read again when it is older
//	collect.go      the families of models
//	exposition.go   the page, in the format of package exposition
//
// Lives: a Registry lives as long as its server. Model returns the counters of a version
// and Model.Close takes them off the page; loads of the same labels share one Model. A
// series of a custom metric lives until no life holds it, and one that an unloaded model
// has left behind counts on when the model is loaded again, as in Triton.
//
// The page: what grows with models is written by the registry itself, from labels that were put
// together at the load; the rest is gathered by the library. A family of ours has samples of those
// versions alone that have something to say in it, while Triton's have all from the load on.
//
// Locks: Registry.mu guards which models are shown, custom.mu which families and series
// there are and how many lives hold each; a histogram, machine and each reading have their own. Each is
// held alone, and none while a line is written: a slow reader of the page delays no model, and holds
// one piece of the page.
//
// Callers: any goroutine may count and render. A Holder is called by one goroutine at a
// time, which backend/process sees to by the receive lock of its channel. Gauge is called
// before the first model makes a metric, since it reserves the name without a lock.
//
// Memory: counting is atomic additions and allocates nothing; a histogram takes its
// lock, a summary the library's. What models can make is bounded: Config.ModelSeries,
// Config.Series and Config.ModelBytes.
package metrics
