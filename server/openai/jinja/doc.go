// Package jinja renders the chat templates of tokenizers. It supports Jinja as Python's library
// transformers configures it: trimmed blocks, loop controls, and the functions raise_exception and
// strftime_now. Parse rejects files, imports, inheritance and other features that chat templates
// do not use.
//
//	source ── lexer ── tokens ── parser ── Template ── Meter.Render(variables) ── text
//
// Values are Go's: nil (None), Undefined, bool, int64, float64, string, List, *Dict and functions.
// A Dict keeps the order of its members, as in Python.
//
// A Template does not change after Parse and may be rendered by several goroutines. Each rendering
// has its own Meter.
//
// Errors: the first error of a rendering is kept by its Meter. From then on all methods of the
// Meter return at once and allocate nothing, so evaluation needs no error results.
//
// Memory: a Meter creates all values of a rendering, including its variables and its result, and
// asks Limits.Room first. A test of the sources finds other allocations. The result and the values
// belong to the caller.
//
// Trust: the template is the operator's, the variables are a client's. A rendering ends after
// Limits.Steps, and soon after Limits.Ended reports an error. The nesting of macro calls and of
// values is bounded.
package jinja
