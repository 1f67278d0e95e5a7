// Package top is the subcommand `nereid top`: a view of a running server in a terminal, or once as
// text or JSON.
//
//	Run ── options
//	   └── poller ──▶ View ──▶ table, panes ──▶ text (--once), JSON, or screen
//	       index, statistics, /metrics, /status      keys ──▶ control: load, unload, instances
//
// A poller queries all endpoints at once and joins the responses into an immutable View; failures
// become notes of the View. Tables are made from a View and the user's choices (ui), without a
// terminal, so tests need no terminal either.
//
// Memory: a poller keeps a View, the counters of the last rateSpan and maxLines lines of the log.
//
// Run's goroutine alone uses the screen and the ui. One goroutine polls, with one more per
// endpoint, one reads terminal events, and one executes a load or unload; each sends on a channel.
// Run returns when all have ended. A panic in one of them becomes a note of the View or ends the
// session; its stack is printed once the terminal is restored.
package top
