// Package faults has system calls of the real server fail, one after another, while it
// starts, loads, restarts a model process, grows its memory, accepts connections and has regions
// of clients mapped. It has no code but tests.
package faults
