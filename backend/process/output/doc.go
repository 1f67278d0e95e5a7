// Package output passes on what the processes of models print, line by line: to this
// process's own streams, or as texts of the log.
//
// A Capture has two pipes. Begin starts one goroutine for each; Finish, when the process
// has ended, takes what is left, waits for both and closes the pipes, though a child of
// the process may hold the other ends. What comes faster than Limit allows is dropped
// and counted. The last lines are kept for the report of a loss.
//
// Capture.mu guards limit and last lines; no line is written while it is held but to
// the log. A Limit belongs to one user, which locks.
package output
