// Package launch starts, watches and reaps the processes of models, and ends their orphans.
//
//	Start or Adopt ──▶ watched ──▶ ended ──▶ reaped ──▶ forgotten
//	       (by Children.Bear)        │
//	                     its process group is killed before its number is given back
//
// Children is the table of all these processes. This process is their subreaper: a process that a
// model has started and abandoned becomes its child. The orphan is identified by its mark
// (orphans.go), and ends with the model's process that has that mark.
//
// Process.Wait returns when the process and its group have been reaped; the caller of Bear provides
// the goroutine that waits. Children.Close waits for its own goroutines and ends all orphans; when
// it returns, no process of a model runs.
//
// Lock order: births, Children.mu, Process.mu. births is held for reading from the start of a
// process until it is watched, and for writing while unknown children are reaped. No lock is held
// during calls of other packages, except births in the start function of Bear. census.mu is a leaf.
//
// Package process creates one Children for the supervisor. There is only one in this process,
// because signals and orphans belong to the process. Programs such as backend/python call Start or
// Adopt inside Bear. For a program that is not a stub and ends by itself, such as conda-unpack,
// Children.Run does everything. One goroutine calls Wait, once. Look comes before the end, because
// the kernel lists the descendants of a process only until it is reaped. Forget comes after Wait:
// an unknown process is reaped as an orphan, and Wait would miss its status. KillAll may be called
// at any time.
//
// A Process holds a pidfd until Wait has returned. Signals to its pid are safe under Process.mu
// until reap has seen its end.
package launch
