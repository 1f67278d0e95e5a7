// Package certificates loads the certificates of a front end from files, and reloads them when the
// files change: a new certificate takes effect with the next connection, without a restart.
//
//	Files ── Load ──▶ Store ── Config ──▶ *tls.Config, whose every handshake asks the Store
//
// If the files are unusable the Store keeps serving their last usable content. That is common,
// since most tools replace certificate and key one after the other. Each unusable content is logged
// once.
//
// Store.mu is held while files are read, by one handshake at a time; the others wait. No other lock
// is acquired under it. A *tls.Config does not change once a handshake has it.
package certificates
