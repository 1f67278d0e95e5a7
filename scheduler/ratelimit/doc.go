// Package ratelimit implements Triton's rate limiter "execution_count": instances of all models
// take turns.
//
// A Limiter stands between schedulers and instances. An instance that a scheduler wants to use is
// staged until its turn comes and the resources of its group are free. The next staged instance is
// the one with the fewest executions, times its priority. While its resources are not free, all
// wait.
//
//	scheduler ──▶ staged, ordered by executions × priority ──▶ running, holds resources ──▶ Done
//
// A scheduler that is a backend.Applicant forms its batch when the turn has come (Apply, Granted,
// Settled). A sequence batcher or a warm-up passes a complete batch to Execute, which is staged as
// it is.
//
// A BLS request could wait for resources that its own callers hold. It therefore goes first, and
// the resources of its callers count as free for it.
//
// Reserve checks before a version is loaded whether its instances could ever execute; the Share is
// released when the version has ended.
//
// Locks: a scheduler's lock, then Limiter.mu, with which nothing is called. Recall and Score may
// be called with a scheduler locked; Apply, Mention and the methods of backend.Instance may
// not.
package ratelimit
