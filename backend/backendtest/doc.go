// Package backendtest has instances for the tests of packages that give work to
// instances. They run no model: an Instance answers after a pause, a Held when its test
// says so.
//
// Locks: each instance has one, which is not held while a batch is ended or a task is
// answered.
package backendtest
