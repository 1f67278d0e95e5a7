// Package warmup has instances execute the samples of a model's model_warmup before
// requests reach them. It knows nothing of the registry: which version an instance
// belongs to, and what is done with an error, its callers know.
//
// A Barrier stands between the instances of one version and its scheduler, and takes each
// instance through these states:
//
//	(unknown) ─ Available ─▶ warming up ─▶ warm ─ Admit ─▶ passed ─ Lost ─▶ lost ─ Available ─▶ warming up ─▶ passed
//	                             └─ Lost ─▶ lost
//	any ─ Retire, Refuse ─▶ retired, does not pass any more ─ Forget ─▶ (unknown)
//
// Samples makes the data of one sample at a time and executes it past the scheduler.
// Instances that are warmed up at once share the data of a sample, which are dropped with
// the last of them; no sample has more than 2 GiB.
//
// Locks: arrival.turn, which is held while the scheduler hears of one instance, is taken
// before Barrier.mu. Barrier.mu is held for look-ups alone; no callback runs under it.
// Samples.mu stands by itself.
//
// Available and Lost are called by backends, from any goroutine. The version's owner calls the
// rest: Wait, Admit, Retire, Refuse and Forget for one change of the version at a time,
// and Close at its end, which returns when nothing is being warmed up any more.
package warmup
