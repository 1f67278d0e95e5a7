// Package jinja renders chat templates of tokenizers: Jinja templates as Python's library
// transformers sets them up, with blocks trimmed, loop controls, and the functions
// raise_exception and strftime_now. It has what templates of chats use and refuses the rest
// when it parses: no files, no imports, no inheritance.
//
//	source ── lexer ── tokens ── parser ── Template ── Render(variables) ── text
//
// Values are those of Go: nil (None), Undefined, bool, int64, float64, string, List, *Dict,
// and functions. A Dict keeps the order of its members, as Python's does.
//
// State: a Template does not change after Parse. There is no lock.
//
// Callers: any goroutine may Render; each call has a state of its own. Values that are
// rendered do not change, but for namespaces, which templates make themselves.
//
// Memory: Limits.Room is asked before texts grow, for all texts that a rendering makes
// together. The result and the values belong to the caller.
//
// Trust: the template is the operator's and the variables are a client's. A rendering ends
// after Limits.Steps, and calls of macros do not nest deeply.
package jinja
