// Package foreign describes memory of other processes that this process passes on without touching
// it: who may use it, and until when.
//
// Any goroutine may call the package. The lock of an Ending is a leaf, and functions of OnEnd run
// without it.
package foreign
