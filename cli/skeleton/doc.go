// Package skeleton is the subcommand `nereid new`: it writes the first files of a model or of a
// backend in Go, which work without changes.
//
//	Run ─┬─ model ───▶ templates/model   ─┬─ write ──▶ DIRECTORY/NAME/…
//	     └─ backend ─▶ templates/backend ─┘
//
// The path of a template, without ".tmpl", is the path of the generated file; NAME in it stands for
// the name. Existing files are never changed: a skeleton is created in a temporary directory next
// to its destination, and renamed when it is complete.
//
// The exit status is 0 if it was written, 1 if not, and 2 for a bad command line.
package skeleton
