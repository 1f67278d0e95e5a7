// Package conda interprets the Python environments that models name: a value of EXECUTION_ENV_PATH,
// the program and the variables that an environment gives to a stub, and the reasons why it does
// not work. docs/environments.md has the tables.
//
//	value ──Locate──▶ EnvPath ──Inspect──▶ Environment ──Variables──▶ the stub's variables
//	                    │ archive: unpacked by others,        └─Examine──▶ Report
//	                    └─ then Inspect of its directory
//
// An EnvPath and an Environment describe the files at the time of the call. A caller that keeps one
// inspects again when the files change. The package writes nothing, and reads an environment's
// scripts without running them. Values may be used concurrently as long as no goroutine writes
// their fields. Programs are started only through the caller's Run, so that one part of a server
// reaps them. Files that are read are bounded (maxText), since a model's author writes them.
package conda
