// Package servertest stands for all that the front ends ask of others, in tests: the
// Core with its models, the memory of requests, the log settings. It does not know
// package server, whose own tests use it.
//
// State: a Core is put together before the front end runs, and its models after that answer
// from any goroutine. Blocks counts what it has lent, so that a test can wait until all is back
// (Blocks.Lent) and find what was released twice, which is a panic.
//
// Callers: tests and benchmarks of the front ends.
package servertest
