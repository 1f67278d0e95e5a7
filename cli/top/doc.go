// Package top is the subcommand `nereid top`: a view of a running server in a terminal, or once as text or JSON.
//
//	Run ── options
//	   └── poller ──▶ View ──▶ table, panes ──▶ text (--once), JSON, or screen
//	       index, statistics, /metrics, /status      keys ──▶ control: load, unload, instances
//
// A poller asks all endpoints at once and joins what answers to a View; what does not is a note of it. A View does not change once it is
// made. The tables are made of a View and what the user has chosen (ui), without a terminal, so that their tests need none.
//
// Memory: a poller keeps a View, the counters of the last rateSpan and maxLines lines of the log.
//
// Goroutines: that of Run alone touches the screen and the ui. One more polls, with one for each endpoint while it looks, one reads
// the terminal's events, and one carries out a load or unload while it lasts; each sends on a channel. Run returns when all have
// ended. There is no lock. A panic behind one of their boundaries is a note of the View, or ends the session: its stack is written
// when the terminal has been given back.
//
// Callers: package cli, once.
package top
