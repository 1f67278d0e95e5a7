// Package devserver shows a person at a terminal how the start of a server gets on: a line for each model as it
// comes up, below them a status that changes in its place, with the time left, and in the end what serves and
// where.
//
//	✓ greeter 1  0.3 s
//	✗ broken 1   0.2 s
//	loading 2 of 4: resnet50, speech; about 12 s left
//
// The time left comes from how long each model took before (Times, a file in the user's cache folder that
// concerns one repository), and for models without a time from the mean of those that are up.
//
// States: a Progress is planned, and then has models that wait, load, and are up or have failed. Close ends its goroutine
// and takes the status away; loads that come later, by a poll or a request, are shown by a line alone.
//
// With --dev a Terminal watches that the debugger of a model which has died does not keep the terminal. Its
// goroutine runs until Close.
//
// Locks: Progress.mu, under which the console is written to. Times has none: Progress guards it.
//
// Callers: package cli makes one Progress for a server; the registry's goroutines call it as models.LoadObserver.
//
// Memory: a time is kept for each model, and Times keeps mostModels of them in mostRepositories.
package devserver
