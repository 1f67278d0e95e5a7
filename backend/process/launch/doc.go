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
// Lives: Process.Wait returns when the process and its group have been reaped; who
// starts a process waits for it. Children.Close waits for its own goroutines and ends
// all orphans; when it returns, nothing of the models runs.
//
// Locks: births before Children.mu before Process.mu. births is held for reading while
// a process is started until it is watched, and for writing while unknown children
// are reaped. None is held while anything outside the package is called, but for
// births in the start function of Bear.
package launch
