// Package copies keeps directories of models outside any repository on disk: files that came with a
// load request, or that were fetched from an object store.
//
//	Workspace ── Make ──▶ Copy      one user: its maker
//	Copy  ── Hold, Drop         the last Drop removes the directory
//	Workspace ── Close              removes all copies
//	Sweep                       removes the workspaces of killed servers
//
// A Workspace is one directory of mode 0700 with a lock (flock) on it, made for the first copy. The
// server holds the lock while it lives, and the kernel releases it when the server is killed. Sweep
// removes unlocked workspaces of this user and touches no other file. A workspace that a cleaner of
// temporary files has removed is made again.
//
// TryHold fails once the last user of a Copy has dropped it; Hold is only for its users.
// Workspace.mu is held while the directory is made, checked or removed, and nothing is taken under
// it. Any goroutine may call anything here. A nil Copy may be held and dropped: a model in a
// repository needs no copy.
package copies
