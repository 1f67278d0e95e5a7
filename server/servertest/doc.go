// Package servertest has fakes for tests of the front ends: the Core with its models, the memory of
// requests, and the log settings. It does not import package server, whose own tests use it.
//
// A Core is set up before the front end runs; after that its models may be called by any goroutine.
// Blocks counts the blocks that it has lent, so that a test can wait until all are released
// (Blocks.Lent). A second release panics.
package servertest
