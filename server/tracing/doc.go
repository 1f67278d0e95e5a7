// Package tracing decides which requests of clients are traced, and keeps what was
// recorded of them: as Triton's trace files, or as spans that the OpenTelemetry SDK sends
// to a collector. What is recorded, and where, is the matter of package infer/trace.
//
//	front end ── On, Sample ──▶ setting ── yes ──▶ trace.Tree ── complete ──▶ recorder ──▶ file, or OTLP
//
// # Settings
//
// There is a global setting, and one for each model that overrides a part of it. A model's
// values fall back to the global ones, those to the values of the start. Each change
// replaces a setting by a new one, whose count of requests begins anew, while the traces
// that were left are handed on; the old one keeps the traces that it has begun.
//
// # Off
//
// While nothing can be sampled, Tracer.on is nil: On is one atomic load, and Sample is not
// called. A nil Tracer is off for good.
//
// # Locks
//
// Tracer.mu, then setting.mu. The recorder's mu guards its queue alone; sinks belong to
// the recorder's goroutine. Sample takes setting.mu only. Nothing that takes a request on its
// way writes a file or speaks to a collector: the recorder's goroutine does.
//
// # Callers
//
// Front ends call On, Sample, Settings and Change from any goroutine. The owner calls Close
// once, after the last request has ended.
//
// # Memory
//
// Texts of tensors are charged to the account, as JSON, until their trace has been kept or
// dropped; a tensor without room is left out, with a line in the log. Complete traces wait in the recorder's queue, at most maxQueued; what comes then is
// dropped, counted and logged. Texts for files are gathered up to maxGathered bytes.
package tracing
