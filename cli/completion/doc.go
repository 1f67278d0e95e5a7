// Package completion is the command `nereid completion`: scripts by which bash, zsh and fish complete
// command lines of nereid. The scripts know no command and no flag. They ask the binary itself, which finds
// what can stand at the cursor in the descriptions of its commands:
//
//	TAB ─▶ script ─▶ nereid completion candidates -- WORDS… ─▶ first line: the kind of files that fit as well
//	                                                          each other line: a candidate, a tabulator, its help
//
// WORDS are those behind the program's name up to the cursor; the last one is being written and may be empty.
//
// Names of models are those of a directory on the command line, of models or of records, or else of the server that it
// names by --url, whose repository index is asked for. Only names that no shell reads as anything else are offered: a
// server's names are not trusted.
//
// The package has no state, no lock and no goroutine. Its caller is package cli, which hands the
// descriptions over.
package completion
