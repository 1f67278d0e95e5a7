// Package roster keeps the instances of a version for its scheduler: which are
// available, lost, hopeless or retiring.
//
// A Roster is part of a scheduler, which hands it the events of its instances
// (backend.Events, Retire). Each instance that an event names is a member:
//
//	(unknown) ─ MeetLocked ─▶ lost
//	lost, hopeless ─ AvailableLocked ─▶ available
//	available, lost, hopeless ─ LostLocked ─▶ lost, or hopeless if for good
//
//	any of these ─ RetireLocked ─▶ the same, and retiring ─ DrainLocked ─▶ retired
//	retired ─ ForgetLocked ─▶ (unknown)
//
// A new member is lost until it is available. A retiring member goes on through the
// states above; its scheduler gives it nothing new, and drains it when it has nothing
// left. A retired instance is no member, but is remembered until its owner says that it
// has ended: what it says meanwhile, however often, does not bring it back.
//
// There is no hope if no member is available, or lost and expected again, retiring
// members aside: requests then get the error backend.Unhealthy. Without any member
// there is hope, as the first are still to come.
//
// What an instance has, idle, busy or a slot's sequence, is the scheduler's own: it
// keeps that in a struct of its own with Member embedded, and a Roster of pointers to
// that struct.
//
// Callers: one scheduler, from any goroutine that holds its mu.
//
// Locks: a Roster has none. The mu of its scheduler guards it and all of a Member but
// Instance and Order, which a scheduler reads after unlocking in order to call the
// instance. No method calls an instance; create runs with mu held. DrainLocked returns
// the callback of Retire and does not call it, as that may call back into the scheduler.
//
// Memory: one Member for each instance. The list that MembersLocked returns is never
// written to; a member that is added or removed is in the next one. A batch may hold
// its member for longer than the Roster does. No method allocates on the way of a
// request.
package roster
