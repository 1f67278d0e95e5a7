// Package connections bounds the connections of all front ends and accepts them.
// It knows no protocol.
//
// A Budget is shared by the front ends of a process: there are never more
// connections than descriptors are left for. Each front end has a Set with a limit
// of its own, and each connection is a Member of it. Where there is no room for
// another connection, by the limit, for want of a descriptor or of memory, the
// connection that has been idle for longest is closed for it, of whatever front end. A few
// connections of each front end are its own: the others cannot take their descriptors, and they are
// let in whatever memory is charged.
//
//	accepted ── Set.Enter ──▶ idle ⇄ busy ── Set.Leave
//	                           └─ evicted (Member.Close) ── Set.Leave
//
// States: a Member is idle or busy from Enter to Leave, or to its eviction; Leave is said in
// both cases. A Member tells that it becomes busy or idle with one atomic store and no lock; the
// heap of its Set learns of it when room is wanted. Member.Close decides between an
// eviction and a request that begins at the same moment, and keeps connections with bytes that are
// not read yet.
//
// Callers: package nereid makes one Budget before all front ends. Each of the servers
// (http1.Server, the listener of package grpc) makes its Set, and its one accepting goroutine
// calls Acceptor.Accept and Set.Enter. Member.Busy and Member.Replied are called by the goroutine
// that serves the connection, for gRPC by those of its RPCs; Set.Leave by the goroutine that
// closes the connection.
//
// Memory: a connection costs what its Set says, charged as connections when it is let in; an
// eviction in one Set may make room in the account for another. The heap has one entry for each
// connection.
//
// Locks: Budget.mu before Set.mu. Member.Close is called under both and takes neither.
// Whatever Enter has charged for a connection is given back by its eviction or by
// Leave, whichever comes first; every connection that has entered leaves once.
package connections
