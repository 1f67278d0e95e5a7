// Package output forwards the output of models' processes line by line, to this process's own
// streams or to the log.
//
// A Capture has two pipes, and Begin starts a goroutine for each. Finish is called when the process
// has ended. It reads the rest, waits for both goroutines and closes the pipes, even if a child of
// the process holds the other ends. Lines beyond Limits are dropped and counted. The last lines are
// kept for the report of a loss.
//
// Capture.mu guards limit and last lines; it is held during writes to the log only. A Limit belongs
// to one user, which locks it.
package output
