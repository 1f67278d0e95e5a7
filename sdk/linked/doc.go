// Package linked runs backends that are linked into the server's own process.
//
//	Backend          initialized when its first model is opened; closed with the server
//	└─ Model         a version; implements backend.Model and applicable optional interfaces
//	   └─ Instance   an engine.Instance with its placement
//
// An instance is available from Start or Grow until End or Close, and is never lost: an error only
// affects its batch. Code that does not return cannot be ended: it is left behind with its
// goroutine, and logged.
//
// Package models calls the package by the interfaces of package backend; package engine calls the
// author's hooks. Goroutines create and close instances concurrently, and wait for instances that
// did not return.
//
// Locks: Backend.mu is held while the author's New and Close run. Model.mu is held alone and
// briefly.
//
// Memory: as in package engine. A model without an instance keeps no metrics. Those of an unloaded
// model continue after a reload.
package linked
