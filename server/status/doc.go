// Package status makes snapshots of a server's state for the people who run it: models and
// versions with the reasons of failed loads, instances with their processes, queues, counters,
// percentiles of the last minutes, the last errors and lines of the log. `GET /status` of the
// metrics endpoint is a Snapshot as JSON; docs/operations.md describes its members.
//
//	registry of models ─┐
//	metrics ────────────┼─▶ Keeper ──▶ Snapshot ──▶ GET /status, pages
//	supervisor ─────────┘     ▲
//	logger ──────────▶ Log ───┘
//
// States: a Keeper collects while Run runs, every Step and when a reader asks; before Run, and
// after, a reader gets the last snapshot, which may be empty.
//
// Waiting: one goroutine, that of Run, collects. A reader waits for it no longer than patience,
// and then gets the snapshot before, whose At tells its age. So a lock that is held somewhere
// below costs a reader of the status its freshness, and nothing else. What requests do is
// counted in any case, and read here by atomic loads: a request pays nothing.
//
// Locks: Keeper.mu guards the channel that readers wait on, Log.mu the lines; each is held for
// a few instructions or copies, and nothing is called with it held.
//
// Memory: a Log keeps at most maxLines lines and maxBytes of text, and as much again of
// errors. The history has Points points of busyVersions versions at most, and none anew for a version that does
// nothing. A Snapshot does not change once it is made; its readers share it.
package status
