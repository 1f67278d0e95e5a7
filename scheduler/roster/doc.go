// Package roster tracks the instances of a version for its scheduler: which are available, lost,
// hopeless or retiring.
//
// A Roster is part of a scheduler, which passes it the events of its instances (backend.Events,
// Retire). Each instance that an event names is a member:
//
//	(unknown) ─ MeetLocked ─▶ lost
//	lost, hopeless ─ AvailableLocked ─▶ available
//	available, lost, hopeless ─ LostLocked ─▶ lost, or hopeless if no restart is expected
//
//	any of these ─ RetireLocked ─▶ the same, and retiring ─ DrainLocked ─▶ retired
//	retired ─ ForgetLocked ─▶ (unknown)
//
// A retiring member passes through the states above, but its scheduler gives it nothing new and
// drains it when its work has ended. A retired instance is no longer a member. The roster remembers
// it until ForgetLocked, and ignores its events.
//
// Requests get the error backend.Unhealthy if no member that is not retiring is available or
// expected again. Without any member there is hope, as the first ones are still to come.
//
// The scheduler keeps its own data about an instance in a struct that embeds Member, and a Roster
// of pointers to that struct.
//
// Locks: the scheduler's mu guards a Roster and each Member, except Instance and Order. No method
// calls an instance. DrainLocked returns the callback of Retire instead of calling it, because the
// callback may call back into the scheduler.
//
// Memory: the slice that MembersLocked returns is never written to. A batch may keep its member
// longer than the Roster does. No method allocates on the path of a request.
package roster
