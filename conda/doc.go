// Package conda knows the Python environments that models name: what a value of
// EXECUTION_ENV_PATH means, which program and which variables an environment gives to a
// stub, and what keeps it from working. docs/environments.md has the tables.
//
//	value ──Locate──▶ Place ──Inspect──▶ Environment ──Variables──▶ what the stub is started with
//	                    │ archive: unpacked by others,        └─Examine──▶ Report
//	                    └─ then Inspect of its directory
//
// States: none. A Place and an Environment say what the files were when they were looked
// at; a caller that keeps one inspects anew when the files change. Nothing is written, and
// scripts of an environment are read, never run.
//
// Locks: none. A value may be used by several goroutines as long as none writes its fields.
//
// Callers: package backend/python for models, cli for `nereid env doctor`, package
// conda/build. Programs are started through the caller's Run alone, so that one place of a server reaps.
//
// Memory: files that are read are bounded (maxText), since a model's author writes them.
package conda
