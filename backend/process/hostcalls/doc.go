// Package hostcalls executes the host calls of one process: all requests of its model to the server
// except inference. CALL loads and unloads models, asks whether a model is ready, and creates
// metrics; METRIC changes a metric. A life has one Calls.
//
//	CALL ─▶ Receive ─┬─ metrics: at once ──────────────────────────────┬─▶ RESULT
//	                 └─ load, unload, ready: a goroutine ─▶ Host ──────┘
//	METRIC ─▶ Measure: at once, without a RESULT
//
// Receive and Measure are called with the channel's receive lock held, in the order of the frames;
// calls that are executed at once keep this order. Close is called when nothing is received any
// more; it cancels the calls that wait for the Host and returns when they have ended.
//
// Goroutines: there is one for each load, unload and readiness query, at most Limits.Most, with a
// limit on the bytes of their bodies. A RESULT rejects further calls.
//
// Memory: decoded bodies are on the Go heap and charged to the life: that of a call that waits,
// with the files of a load, until the Host has returned. Nothing is lent, except for a RESULT that
// is too long for the ring (package frames).
//
// Trust: a body is checked before it is decoded (frames.DecodeMap), and files are counted before
// anything is allocated for them. An operation that a correct stub never requests ends the life.
package hostcalls
