// Package completion is the command `nereid completion`: scripts with which bash, zsh and fish
// complete command lines of nereid. The scripts know no commands and no flags. They call the
// binary, which finds the candidates in the descriptions of its commands:
//
//	TAB ─▶ script ─▶ nereid completion candidates -- WORDS… ─▶ first line: the kind of files that fit as well
//	                                                          each other line: a candidate, a tab, its help
//
// WORDS are the words after the program's name up to the cursor. The last one is incomplete and may
// be empty.
//
// Model names come from a directory of models or of recorded requests on the command line, or from
// the repository index of the server at --url. Names that a shell would interpret are left out,
// because a server's names are not trusted.
package completion
