// Package logs writes the log in tritonserver's format, and everything else that the server prints.
//
//	zerolog ── lines of JSON ──▶ Writer ── lines as Triton's ──▶ Console, or the file of --log-file
//	models' own output, tables ────────────────────────────────▶ Console
//
// With Options.Interactive, lines on a terminal are shorter and coloured, and a status line may
// follow them (Console.SetStatus).
//
// Settings select the lines; Control shows and changes them over the logging endpoints. A Console
// never blocks its writer: a slow or missing reader costs lines, not requests.
//
// Locks: Writer.mu before Console.mu. Settings are atomics, and any goroutine may read and change
// them at any time.
//
// Memory: a Writer keeps the buffer of its longest line, a Console at most maxUnread bytes.
package logs
