// Package linked has backends that are written against package sdk and linked into the server's own process.
//
//	Backend          initialized when its first model is opened; closed with the server
//	└─ Model         a version; implements backend.Model, and what of its companions makes sense here
//	   └─ Instance   an engine.Instance with its place
//
// An instance is available from Start, or Grow, until End or Close, and never lost in between: what goes wrong in it is an error of its batch. Nothing
// here can end code that does not return: it is left behind, with its goroutine, and the log says so.
//
// Callers: package models, by the interfaces of package backend. The author's hooks are called by package engine.
//
// Goroutines: one for each instance that is made or closed beside others, and one that waits for instances that did not return at Close.
//
// Locks: Backend.mu is held while the author's New and Close run. Model.mu is held alone, for a few instructions.
//
// Memory: as in package engine. A model of which nothing came up keeps no metrics; one that was unloaded leaves them, to count on after a reload.
package linked
