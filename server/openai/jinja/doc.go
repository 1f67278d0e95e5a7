// Package jinja renders chat templates of tokenizers: Jinja templates as Python's library
// transformers sets them up, with blocks trimmed, loop controls, and the functions
// raise_exception and strftime_now. It has what templates of chats use and refuses the rest
// when it parses: no files, no imports, no inheritance.
//
//	source ── lexer ── tokens ── parser ── Template ── Meter.Render(variables) ── text
//
// Values are those of Go: nil (None), Undefined, bool, int64, float64, string, List, *Dict,
// and functions. A Dict keeps the order of its members, as Python's does.
//
// State: a Template does not change after Parse. There is no lock.
//
// Callers: any goroutine may render; each rendering has a Meter of its own. Values that are
// rendered do not change, but for namespaces, which templates make themselves.
//
// Memory: a Meter makes all values of a rendering, those that it is given and the result
// included, and asks Limits.Room before each. So a new filter cannot allocate without it; a
// test of the sources finds those that try. The result and the values belong to the caller.
//
// Trust: the template is the operator's and the variables are a client's. A rendering ends
// after Limits.Steps, of which work on large values takes many, and soon after Limits.Ended
// says so. Calls of macros do not nest deeply, nor do values.
package jinja
