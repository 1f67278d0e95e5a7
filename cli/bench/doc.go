// Package bench is the subcommand `nereid bench`: a load generator for servers that speak KServe v2
// with Triton's extensions. It uses HTTP, gRPC or gRPC streams, with tensors in the requests or in
// shared memory.
//
//	Run ── parse ── target ── data ── for each level: load ── report
//	       options  metadata  tensors   warm-up, measurement   latencies, statistics of the server, comparison
//	                config    bodies
//
// Package client makes the calls that are not measured. A target opens the connections of one
// protocol (caller), which send prepared requests. A load has either a fixed number of callers,
// each of which sends its next request when it has a response, or a rate. With a rate, requests are
// due at times that do not depend on responses, and their latency counts from the due time.
//
// Each caller has a histogram of latencies with buckets narrower than 0.8 percent, so memory does
// not grow with the length of a measurement. The server's statistics before and after the
// measurement show the time spent in the server; the rest is network and client.
//
// Each caller has a goroutine, which alone uses its connection. One more writes the live line. The
// only lock is that of a caller's histogram.
package bench
