// Package tracing decides which client requests are traced, and keeps their traces: as Triton's
// trace files, or as spans that the OpenTelemetry SDK sends to a collector. Package infer/trace
// records them.
//
//	front end ── On, Sample ──▶ setting ── yes ──▶ trace.Tree ── complete ──▶ recorder ──▶ file, or OTLP
//
// There is a global setting, and one for each model that overrides a part of it. A model's values
// fall back to the global ones, and these to the values at startup. Each change replaces a setting
// by a new one, whose request count starts again while the remaining traces are carried over. The
// old setting keeps the traces that it has begun.
//
// While nothing can be sampled Tracer.on is nil: On is one atomic load, and Sample is not called. A
// nil Tracer traces nothing.
//
// Locks: Tracer.mu, then setting.mu. The recorder's mu guards only its queue; sinks belong to the
// recorder's goroutine. Sample acquires only setting.mu. Only the recorder's goroutine writes files
// and talks to a collector.
//
// Front ends call On, Sample, Settings and Change from any goroutine. The owner calls Close once,
// after the last request has ended.
//
// Memory: texts of tensors are charged to the account, as JSON, until their trace has been kept or
// dropped. A tensor without room is left out and logged. At most maxQueued complete traces wait in
// the recorder's queue; more are dropped, counted and logged. Texts for files are collected up to
// maxGathered bytes.
package tracing
