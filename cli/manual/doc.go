// Package manual is the command `nereid man`: the manual page, in roff with man macros. It is
// generated from the descriptions of the commands and their flags, so that it always agrees with
// --help.
package manual
