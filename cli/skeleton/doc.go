// Package skeleton is the subcommand `nereid new`: it writes the first files of a model or of a backend in Go, which
// can be served and tested as they are.
//
//	Run ─┬─ model ───▶ templates/model   ─┬─ write ──▶ DIRECTORY/NAME/…
//	     └─ backend ─▶ templates/backend ─┘
//
// A template's path, less ".tmpl", is the path of the file that it becomes; NAME in it stands for the name.
// Nothing that exists is changed: a skeleton is made in a temporary directory beside its place, and moved there when it
// is whole.
//
// Exit status: 0 it is written, 1 it is not, 2 the command line is not understood.
//
// States, locks, goroutines: none.
//
// Callers: package cli, once.
//
// Memory: nothing is kept.
package skeleton
