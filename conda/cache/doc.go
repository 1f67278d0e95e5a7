// Package cache keeps unpacked environments: one directory for each content of an archive, shared
// by the models of a server, by servers, and across restarts.
//
//	Archive ─▶ index ───────────▶ record ─▶ hold          a warm start: reads nothing of the archive
//	   │       identity → digest     ▲
//	   └─▶ source lock ─▶ unpack ─▶ conda-unpack ─▶ sync ─▶ commit
//	Build ─▶ source lock ─▶ make ───────────────────┘
//
// A cache directory contains:
//
//	<name>/             an environment, in its permanent directory
//	records/<key>.json  the environment of a digest; its rename completes the environment
//	manifests/<name>    its files: kind, mode, size, sum
//	index/<identity>    the digest of an archive by inode, size and times
//	locks/<name>.env    shared: its holders use the environment; exclusive: its holder makes or removes it
//	locks/<key>.source  exclusive: its holder unpacks an archive, or makes the environment of a key
//	locks/index.source  exclusive: its holder changes the index
//	new/                records, manifests and index entries before their rename
//
// A *record* is the small file whose rename makes an environment complete. An environment is being
// made (its lock is held exclusively, and no record names it), complete (a record names it), in use
// (its lock is held shared), or removed. A process may be killed at any instant: the kernel
// releases its locks, and a sweep removes directories without a record and a lock. A name is used
// only once, so a program that outlives its server, such as conda-unpack, writes into a directory
// that no later environment uses.
//
// Locks: a flock excludes other processes and other goroutines alike, because each lock has its own
// open file. A source lock comes before an environment's lock. Makers wait for a source lock as
// long as their ctx allows. evict takes an environment's lock at once or leaves the environment
// alone. acquire tries several times, since List and evict hold that lock exclusively for a moment.
// Cache.placing comes before all of them; Cache.mu is a leaf, and no file is touched under it.
//
// Any goroutine may call the package. Release is called once for each Environment, Close after all
// of them.
//
// Trust: the directory belongs to this user or root, and no other user may write to it. Its
// contents are validated nevertheless: they may be damaged.
//
// Options.MaxBytes bounds the files on disk, except environments in use. A Cache holds one
// descriptor for each held environment.
package cache
