// Package servertest stands for all that the front ends ask of others, in tests: the
// Core with its models, the memory of requests, the log settings. It does not know
// package server, whose own tests use it.
package servertest
