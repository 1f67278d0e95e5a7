// Package certificates keeps what a front end shows to its clients over TLS, and whom it
// accepts, as files have it: a file that is exchanged takes effect with the next
// connection, without a restart.
//
//	Files ── Load ──▶ Store ── Config ──▶ *tls.Config, whose every handshake asks the Store
//
// A Store has two states: what it serves is what the files say, or the files say nothing
// usable and it serves what they said before. Certificate and key are exchanged one after
// the other by most tools, so the second state is an ordinary one; it is logged once for
// each content that cannot be used.
//
// Locks: Store.mu is held while files are read, by one handshake at a time; the others
// wait for it, or find it done. No other lock is taken under it.
//
// Callers: any goroutine. Memory: a *tls.Config that a handshake was given is never
// changed.
package certificates
