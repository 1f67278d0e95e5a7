// Package faults makes system calls of the real server fail, one after another, while it starts,
// loads models, restarts a model process, grows its memory, accepts connections and maps clients'
// regions. It contains only tests.
package faults
