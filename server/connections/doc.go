// Package connections bounds the connections of all front ends and accepts them. It knows no
// protocol.
//
// The front ends of a process share a Budget, which bounds their connections by the available
// descriptors. Each front end has a Set with its own limit, and each connection is a Member of it.
// If there is no room for a connection, for lack of a descriptor or of memory or by the limit, the
// connection of any front end that has been idle for longest is closed. A few connections are
// reserved for each front end. The others cannot take their descriptors, and they are accepted
// whatever memory is charged.
//
//	accepted ── Set.Enter ──▶ idle ⇄ busy ── Set.Leave
//	                           └─ evicted (Member.Close) ── Set.Leave
//
// A Member becomes busy or idle by one atomic store, without a lock. The heap of its Set learns of
// it when room is needed. Member.Close decides between an eviction and a request that begins at the
// same moment, and keeps connections with unread bytes.
//
// Package nereid creates one Budget before all front ends. Each server (http1.Server, the listener
// of package grpc) creates its Set, and its one accepting goroutine calls Acceptor.Accept and
// Set.Enter. The goroutines that serve a connection call Member.Busy and Member.Replied; the one
// that closes it calls Set.Leave.
//
// Memory: each connection is charged the cost of its Set when it is accepted. The charge is
// returned by its eviction or by Leave, whichever comes first. Every connection that has entered
// leaves once.
//
// Locks: Budget.mu before Set.mu. Member.Close is called under both and acquires neither.
package connections
