// Package hostcalls has the host calls of one process: all that its model asks of the
// server but inference. CALL loads and unloads models, asks whether a model is ready, and
// makes metrics; METRIC changes one. A life has one Calls.
//
//	CALL ─▶ Receive ─┬─ metrics: at once ──────────────────────────────┬─▶ RESULT
//	                 └─ load, unload, ready: a goroutine ─▶ Host ──────┘
//	METRIC ─▶ Measure: at once, without a RESULT
//
// Callers: Receive and Measure are called with the channel's receive lock held, so in the
// order of the frames, which what is done at once keeps. Close is called once nothing is
// received any more; it cancels what waits for the Host and returns when that has ended.
//
// Goroutines: one for each load, unload and question; at most Limits.Most of them, with what they
// brought bounded in bytes. A call beyond that is refused, by a RESULT.
//
// Locks: none. Encoder.Send takes the channel's send lock.
//
// Memory: bodies are private copies on the Go heap; the files of a load are parts of one,
// and are kept until the Host has returned. Nothing is lent, but for a RESULT that is too
// long for the ring (package frames).
//
// Trust: a body is skimmed before it is decoded (frames.DecodeMap), and files are counted
// before anything is allocated for them. What no stub asks for ends the life.
package hostcalls
