// Package cache keeps unpacked environments: one directory for each content of an archive, shared by
// the models of a server, by servers, and by starts of them.
//
//	Archive ─▶ index ───────────▶ record ─▶ hold          a warm start: reads nothing of the archive
//	   │       identity → digest     ▲
//	   └─▶ source lock ─▶ unpack ─▶ conda-unpack ─▶ sync ─▶ commit
//	Build ─▶ source lock ─▶ make ───────────────────┘
//
// A cache directory holds
//
//	<name>/             an environment, at the path at which it was made and stays
//	records/<key>.json  which environment a digest has; its rename completes the environment
//	manifests/<name>    each file of it: kind, mode, size, sum
//	index/<identity>    the digest of an archive by inode, size and times
//	locks/<name>.env    held shared by who uses the environment, exclusively by who makes or removes it
//	locks/<key>.source  held exclusively by who unpacks an archive or makes from a key
//	new/                files that are being written, before their rename
//
// States of an environment: in the making (its lock is held exclusively, and no record names it),
// complete (a record names it), in use (its lock is held shared), removed. A process may be killed at any
// instant: the kernel frees its locks, and what no record names and no lock holds is swept. The name of
// an environment is used once, so a program that outlives its server and writes on, such as
// conda-unpack, writes into a directory that no later environment has.
//
// Locks: flocks are between processes and between goroutines alike, as each is taken on a file of its own.
// A source lock before an environment's lock; an environment's lock is waited for by nobody: it is
// had at once or the environment is taken for lost. Cache.mu is a leaf, and is not held while the disk is waited for.
//
// Callers: package backend/python and command `nereid env`, from any goroutine. Release comes once for
// each Environment, Close after all of them.
//
// Trust: the directory is this user's or root's, and no other user may write to it. What lies in it is checked
// for form all the same: it may be damaged.
//
// Memory: files on disk, bounded by Options.MaxBytes but for environments in use. A Cache has one
// descriptor for each environment that it holds.
package cache
