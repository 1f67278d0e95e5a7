// Package ratelimit is Triton's rate limiter "execution_count": instances of all
// models take turns.
//
// A Limiter stands between schedulers and instances. An Instance for which a scheduler
// has something to do is staged until its turn comes and the resources that its group
// asks for are free. The staged Instance is next that has executed least, times its
// priority; while the resources of that one are not free, all wait.
//
//	scheduler ──▶ staged, ordered by executions × priority ──▶ running, holds resources ──▶ Done
//
// A scheduler that is an Applicant forms its batch when the turn has come (Apply,
// Granted, Settled). A batch that is handed to Execute, by a sequence batcher or a
// warm-up, is staged as it is.
//
// A BLS request of a model whose own execution holds resources (or that of its caller)
// would wait for itself in that order: it goes first, and what its callers hold counts
// as free for it.
//
// Reserve says before a version is loaded whether its instances could ever execute;
// the Share is given back when the version has ended.
//
// Locks: a scheduler's lock before Limiter.mu, under which nothing is called. Recall and LeastUsed may be called
// with a scheduler locked; Apply, Mention and all that a backend.Instance has may not.
//
// Memory: each turn allocates the Batch that is handed to the instance.
package ratelimit
