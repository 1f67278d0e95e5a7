// Package copies keeps directories of models that do not lie in a repository on disk: what came with a load request, and
// what was fetched from an object store.
//
//	Place ── Make ──▶ Copy      one user: its maker
//	Copy  ── Hold, Drop         the last Drop removes the directory
//	Place ── Close              removes all copies
//	Sweep                       removes the places of servers that were killed
//
// A Place is one directory of mode 0700 with a lock (flock) on it, made for the first copy. The lock is held as long as the
// server lives, and the kernel takes it back from a server that was killed: Sweep removes the places of this user that nobody
// has locked, and touches no other file beside them. A place that a cleaner of temporary files has removed is made again.
//
// States of a Copy: used until the last Drop, then gone. TryHold of a copy that is gone fails; Hold is for its users alone.
//
// Locks: Place.mu, while the directory is made, looked for or removed. Nothing else is taken under it.
//
// Any goroutine may call anything here. A nil Copy may be held and dropped: it is the copy of a model that needs none.
package copies
