// Package python is the backend of Python models. Package process hosts their instances; this
// package chooses the program for them.
//
//	Backend ──▶ python, one for each interpreter that models have
//	   │          └─ template: a process that has imported numpy, and forks stubs
//	   ├─▶ code, one for each model version: implements process.Program
//	   │    └─ holding: its python, and the directory of its unpacked environment
//	   └─▶ cache.Cache, once a model has a packed environment
//
// Backend unpacks the Python files of the stub once (unpack.go). python finds its interpreter when
// the first model needs it (interpreter.go), keeps the template, and starts stubs: forked by the
// template, or as programs if the template is missing or does not work. code checks the model's
// files, has its execution environment unpacked (environment.go), and writes AUTO_COMPLETE and
// INITIALIZE.
//
// A version's environment is chosen when the version is opened. Its interpreter and variables are
// known after Check has unpacked it. No lock is held meanwhile, and the load's context cancels it.
//
// New starts no process. Models hold their python from Check to Close. A python ends with the last
// of its models, except for the backend's own. A template ends with its python or earlier: it is
// replaced after a failure, at most maxTemplateRestarts times, and an idle template ends if there
// is another one (Backend.rest); the next start of a stub then starts it again. The last template
// stays even if it is idle. Stubs outlive the template that has forked them. Backend.Close is
// called when all models have been closed, and before Supervisor.Close.
//
// Locks: Backend.pythons before python.mu before template.mu; Backend.cache and code.mu are leaves.
// python.mu is not held during the search for an interpreter, so that others can wait for the same
// search. It is held while a template is restarted, so no goroutine waits for it under
// Backend.pythons. template.mu is held for one exchange with the template.
//
// Package models opens model versions through backend.Backend, several at once. Package process
// calls code from the goroutines of a model's instances.
//
// Memory: the bodies that code returns are on the Go heap and belong to the caller. All servers of
// a user share the unpacked files, which are never written again: the name of their directory is a
// checksum of its contents. Package process owns the memory that it shares with stubs.
package python
