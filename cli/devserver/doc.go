// Package devserver is the terminal of `nereid serve`.
//
// A Progress shows the startup: one line for each model, and below them a status line that is
// rewritten in place.
//
//	✓ greeter 1  0.3 s
//	✗ broken 1   0.2 s
//	loading 2 of 4: resnet50, speech
//
// The goroutines of the registry call it as models.LoadObserver. Loads after Close get a line and
// no status.
//
// With --dev a Terminal takes the terminal back if a model dies in its debugger. Its goroutine runs
// until Close.
package devserver
