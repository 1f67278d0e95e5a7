// Package exposition writes metrics in the text format of Prometheus, version 0.0.4, with numbers
// as Triton writes them: the library's own writer would write a million as 1e+06.
//
// A Page is used by one goroutine. It takes no lock, and its caller holds none, because the writer
// may be a client that reads slowly. It buffers one piece of about 64 KiB. When its writer has
// failed it writes nothing more, and Failed returns true.
package exposition
