// Package build makes environments of what a model says it requires: requirements.txt,
// pyproject.toml with uv.lock, or pixi.toml. The programs uv and pixi do the work.
//
//	model directory ──find──▶ Requirements ──Key──▶ cache.Build ──make──▶ uv, pixi
//	                             files, tool          │ there already: nothing is run but the
//	                                                  ▼ questions for versions
//	                                               Environment
//
// States: none. What is made and used lies in package conda/cache, under a key of the contents of
// the files, the version of the interpreter and that of the tool. A build that fails leaves nothing.
//
// Locks: none of its own. Builds of one key wait for each other in the cache; builds of
// different keys run side by side.
//
// Callers: package backend/python, when a model without EXECUTION_ENV_PATH is opened and
// env-build is on. Programs are started through the caller's Run alone.
//
// Trust: what the files name is fetched and may run code of its own, as the model does. The server's
// user and limits hold for it; a directory that holds the files is not written to.
//
// Memory: files are read up to a bound (maxFile), and a program's output is bounded by Run.
package build
