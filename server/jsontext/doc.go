// Package jsontext scans JSON documents, reads their values in place, and appends strings and
// numbers. It builds no tree, so the numbers of a large tensor go from the text directly into their
// destination.
//
//	buf ── Scanner.Scan ──▶ Document ── Root ──▶ Value ── Members, Elements ──▶ Value …
//	        syntax, depth                          ├── Text ──▶ String
//	                                               ├── Bool, Int, Uint, Float
//	                                               └── Leaves ──▶ nested arrays, flattened
//
// Scan checks the syntax of the whole text, once. Later reads rely on it and fail only if a value
// has another type. The syntax, and the texts of all errors, are those of Triton's parser and
// accessors.
//
// Memory: a Document, its Values and their Strings refer to the text and to the scanner's memory.
// They are valid until either changes, and belong to one goroutine. A scan allocates only for
// nesting and for long containers, and charges it. A scan, and a walk over all values, take time in
// proportion to the text, whatever its nesting.
package jsontext
