// Package python is the backend of Python models. Package process hosts their instances;
// this package says what runs there.
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
// Which environment a version has is decided when it is opened. Its interpreter and its
// variables are known when it is unpacked, in Check: no lock is held meanwhile, and the load's
// context ends it.
//
// Lives: New starts no process. A python is held by the models that use it, from Check to
// Close, and ends with the last of them, but for the backend's own. A template lives as long
// as its python, but for three cases: it fails and is replaced, at most maxTemplateRestarts
// times; nothing was forked for a while, and another template is there (Backend.rest): the
// next start of a stub replaces it; it is the last template, and stays although it is idle,
// until there is another.
// Stubs that a template has forked live on. Backend.Close is called when all models have
// been closed, and before the Supervisor is.
//
// Locks: Backend.pythons before python.mu before template.mu; Backend.cache and code.mu are leaves. python.mu is not held
// while an interpreter is looked for, so that others wait for the same search; it is held
// while a template is started again, so nothing waits for it under Backend.pythons;
// template.mu is held for one exchange with the template.
//
// Callers: package models opens model versions by backend.Backend, several at once.
// Package process calls code, from the goroutines of a model's instances.
//
// Memory: the bodies that code makes are on the Go heap and belong to the caller. The
// unpacked files are shared by all servers of a user and are never written again: their
// directory is named by the sum of its contents. What stubs share with the supervisor is
// package process's.
package python
