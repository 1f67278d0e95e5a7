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
//	locks/<name>.env    shared: its holders use the environment; exclusive: its holder makes or removes it
//	locks/<key>.source  exclusive: its holder unpacks an archive, or makes the environment of a key
//	locks/index.source  exclusive: its holder changes the index
//	new/                records, manifests and index entries before their rename
//
// States of an environment: in the making (its lock is held exclusively, and no record names it),
// complete (a record names it), in use (its lock is held shared), removed. A process may be killed at any
// instant: the kernel frees its locks, and what no record names and no lock holds is swept. The name of
// an environment is used once, so a program that outlives its server and writes on, such as
// conda-unpack, writes into a directory that no later environment has.
//
// Locks: a flock excludes other processes and other goroutines alike, as each lock has an open file of its own.
// A source lock comes before an environment's lock. makers wait for a source lock for as long as their ctx allows;
// evict takes an environment's lock at once or leaves the environment alone, and acquire tries a few times, since List
// and evict hold that lock exclusively for a moment. Cache.placing before all of them; Cache.mu is a leaf, and no file is touched under it.
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
