// Package connections bounds the connections of all front ends and accepts them.
// It knows no protocol.
//
// A Budget is shared by the front ends of a process: there are never more
// connections than descriptors are left for. Each front end has a Set with a limit
// of its own, and each connection is a Member of it. Where there is no room for
// another connection, by the limit, for want of a descriptor or of memory, the
// connection that has been idle for longest is closed for it, of whatever front end.
//
//	accepted ── Set.Enter ──▶ idle ⇄ busy ── Set.Leave
//	                           └─ evicted (Member.Close) ── Set.Leave
//
// A Member tells that it becomes busy or idle with one atomic store and no lock; the
// heap of its Set learns of it when room is wanted. Member.Close decides between an
// eviction and a request that begins at the same moment.
//
// Locks: Budget.mu before Set.mu. Member.Close is called under both and takes neither.
// Whatever Enter has charged for a connection is given back by its eviction or by
// Leave, whichever comes first; every connection that has entered leaves once.
package connections
