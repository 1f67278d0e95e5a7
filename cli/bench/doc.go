// Package bench is the subcommand `nereid bench`: a load generator for any server that speaks the KServe protocol v2 with Triton's
// extensions, over HTTP, gRPC or gRPC streams, with tensors in the requests or in shared memory.
//
//	Run ── parse ── target ── data ── for each level: load ── report
//	       options  metadata  tensors   warm-up, measurement   latencies, statistics of the server, comparison
//	                config    bodies
//
// A target is a server by one protocol: what it says of a model, and connections that send prepared requests (caller). Load has
// either a number of callers that each send the next request when the last one is answered, or a rate: requests are due
// at times that do not depend on answers, and their latency counts from the time when they were due.
//
// Latencies go into a histogram of each caller, with buckets of less than 0.8 percent, so that the length of a measurement takes no
// memory. Where the time went is read from the server's statistics before and behind it: what the server does
// not account for is the wire's and the client's.
//
// Goroutines: one for each caller, which alone uses its connection; one for the live line. Run returns when all have ended.
// Locks: none but that of each caller's histogram, taken for each request and by the live line.
//
// Callers: package cli, once.
package bench
