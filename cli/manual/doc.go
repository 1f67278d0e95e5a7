// Package manual is the command `nereid man`: the manual page, in the man macros of roff, made of the descriptions
// of the commands and their flags. What --help shows and the page cannot differ.
//
// The package has no state, no lock and no goroutine. Its caller is package cli, which hands the
// description over.
package manual
