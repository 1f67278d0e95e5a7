// Package status takes snapshots of a server's state for its operators: models and versions with
// the reasons of failed loads, instances with their processes, queues, counters, percentiles of the
// last minutes, and the last errors and log lines. `GET /status` of the metrics endpoint is a
// Snapshot as JSON; docs/operations.md describes its members.
//
//	registry of models ─┐
//	metrics ────────────┼─▶ Keeper ──▶ Snapshot ──▶ GET /status, pages
//	supervisor ─────────┘     ▲
//	logger ──────────▶ Log ───┘
//
// While Run runs, a Keeper collects every Step and when a reader asks. Before and after that a
// reader gets the last snapshot, which may be empty.
//
// Only the goroutine of Run collects. A reader waits for it no longer than patience and then gets
// the previous snapshot, whose At shows its age. A lock that is held in another package therefore
// only makes the status older. Requests are counted in any case and their counters read by atomic
// loads, so the status costs requests nothing.
//
// Keeper.mu guards the channel that readers wait on, Log.mu the lines. Each is held for a few
// instructions or copies, and nothing is called under it.
//
// Memory: a Log keeps at most maxLines lines and maxBytes of text, and as much again of errors. The
// history has at most Points points for each of busyVersions versions, and no new ones for an idle
// version. A Snapshot does not change; its readers share it.
package status
