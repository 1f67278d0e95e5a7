// Package jsontext scans JSON documents, reads values where they stand in the text, and
// appends strings and numbers. It allocates no tree, so that the numbers of a large
// tensor go from the text into their destination and nowhere else.
//
//	buf ── Scanner.Scan ──▶ Document ── Root ──▶ Value ── Members, Elements ──▶ Value …
//	        syntax, depth                          ├── Text ──▶ String
//	                                               ├── Bool, Int, Uint, Float
//	                                               └── Leaves ──▶ nested arrays, flattened
//
// Scan checks the syntax of the whole text, once. All that reads afterwards relies on it
// and fails only where a value has another type than is asked for. The syntax, and the
// texts of all errors, are those of Triton's parser and accessors.
//
// State: a Scanner has the structure of the text that it has scanned last, and a Document remembers
// where a walk has ended last. There is no lock: both belong to one request at a time.
//
// Callers: package rest and the packages below it, for bodies and replies, and package tracing
// for what it writes. Values are read by the goroutine that has scanned them.
//
// Memory: a Document, its Values and their Strings read the text and the scanner's
// memory. They are valid until either changes; nothing here is safe for use by several
// goroutines at once. A scan takes memory for the nesting and for long containers alone, which
// it charges. A scan and a walk over everything take time in proportion to the text, whatever its
// nesting.
package jsontext
