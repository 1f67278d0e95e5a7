// Package exposition writes a page of metrics in the text format of Prometheus, version 0.0.4, as
// Triton writes it: the library's own writer would write a million as 1e+06.
//
//	page.go     Page: families, samples, pieces
//	labels.go   what stands between braces
//	number.go   numbers
//
// States: a Page writes until Flush, or until its writer fails; from then on it writes nothing, and
// Failed tells the maker of the page to stop.
//
// Callers: one goroutine for each Page. Nothing here takes a lock, and a caller of Sample holds
// none: the writer may be a client that reads slowly.
//
// Memory: a Page holds one piece of some 64 KiB, however long the page is; a longer line makes it
// longer. Samples allocate nothing.
package exposition
