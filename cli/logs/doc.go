// Package logs writes the log as tritonserver does, and what else the server prints.
//
//	zerolog ── lines of JSON ──▶ Writer ── lines as Triton's ──▶ Console, or the file of --log-file
//	models' own output, tables ────────────────────────────────▶ Console
//
// At a desk (Options.Desk) lines are shorter and painted, and a status may stand below them (Console.SetStatus).
//
// Settings say which lines are written; Control shows and changes them over the logging
// endpoints. A Console never makes its writer wait: a reader that is slow or gone costs
// lines, not requests.
//
// Locks: Writer.mu before Console.mu. Settings are atomics, and may be read and changed
// by any goroutine at any time.
//
// Memory: a Writer keeps the buffer of its longest line, a Console at most maxUnread bytes.
package logs
