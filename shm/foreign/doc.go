// Package foreign describes memory that others have made and that this process does not touch,
// so that it can be passed on from one process to another: who may use it, and up to when.
//
// Callers are packages that hand it on; any goroutine may call anything. Locks: that of an
// Ending is a leaf, and functions that were given to OnEnd run without it.
package foreign
