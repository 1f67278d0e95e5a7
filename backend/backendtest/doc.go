// Package backendtest has fake instances for tests of packages that schedule work. An Instance
// responds after a pause, a Held when its test says so.
//
// Each instance has a lock, which is not held while a batch ends or a response is sent.
package backendtest
