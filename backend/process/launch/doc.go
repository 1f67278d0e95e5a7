// Package launch starts the processes of models, watches and reaps them, and ends what
// they leave behind.
//
//	Start or Adopt ──▶ watched ──▶ ended ──▶ reaped ──▶ forgotten
//	       (by Children.Bear)        │
//	                     its process group is killed before its number is given back
//
// Children is the roster of all of them. This process is their subreaper: what a model
// has started and left comes home to it, is known by its mark (orphans.go), and is
// ended with the process whose mark it has.
//
// Lives: Process.Wait returns when the process and its group have been reaped; the caller
// of Bear sees to it that a goroutine waits. Children.Close waits for its own goroutines and ends
// all orphans; when it returns, nothing of the models runs.
//
// Locks: births before Children.mu before Process.mu. births is held for reading while
// a process is started until it is watched, and for writing while unknown children
// are reaped. None is held while anything outside the package is called, but for
// births in the start function of Bear. census.mu is a leaf.
//
// Callers: package process makes one Children for the supervisor, which is the only one
// of this process, since signals and orphans are the process's. Programs such as backend/python
// call Start or Adopt inside Bear; for a program that is no stub and ends by itself, such
// as conda-unpack, Children.Run does all of it. One goroutine calls Wait, once. Look comes before the
// end, since the kernel tells what a process has started only until it is reaped, and
// Forget after Wait: a process that is not known is reaped as an orphan, and Wait would
// miss its status. KillAll may be called beside all others.
//
// Memory: no memory is shared with the processes here. A Process holds a pidfd until Wait
// has returned; its number is safe to signal under Process.mu until reap has seen its end.
package launch
