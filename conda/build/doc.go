// Package build makes environments from a model's requirements: requirements.txt, pyproject.toml
// with uv.lock, or pixi.toml. The programs uv and pixi do the work.
//
//	model directory ──find──▶ requirements ──key──▶ cache.Build ──make──▶ uv, pixi
//	                             files, tool          │ cached: only the versions
//	                                                  ▼ are queried
//	                                               Environment
//
// Environments are stored in package conda/cache, under a key made from the files' contents and the
// versions of the interpreter and the tool. A failed build leaves nothing. Builds of one key wait
// for each other in the cache; builds of different keys run concurrently. Programs are started only
// through the caller's Run.
//
// Trust: a build fetches the packages that the files name, which may run code of their own, like
// the model. The server's user and limits apply to it. The directory with the files is not written
// to. Files are read up to a bound (maxFile), and a program's output is bounded by Run.
package build
