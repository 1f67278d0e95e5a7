// Package warmup executes the samples of a model's model_warmup on instances before requests reach
// them. It does not know the registry.
//
// A Barrier stands between the instances of one version and its scheduler. It takes each instance
// through these states:
//
//	(unknown) ─ Available ─▶ warming up ─▶ warm ─ Admit ─▶ passed ─ Lost ─▶ lost ─ Available ─▶ warming up ─▶ passed
//	                             └─ Lost ─▶ lost
//	any ─ Retire, Refuse ─▶ retired, does not pass any more ─ Forget ─▶ (unknown)
//
// Samples makes the data of one sample at a time and executes it past the scheduler. Instances that
// warm up concurrently share the data of a sample; the last of them drops it. No sample has more
// than 2 GiB.
//
// Locks: arrival.turn is held while the scheduler is told of one instance, and is taken before
// Barrier.mu. Barrier.mu is held for look-ups only; no callback runs under it. Samples.mu is
// independent.
//
// Backends call Available and Lost, from any goroutine. The version's owner calls the rest: Wait,
// Admit, Retire, Refuse and Forget for one change of the version at a time, and Close at its end.
// Close returns when no warm-up is running.
package warmup
