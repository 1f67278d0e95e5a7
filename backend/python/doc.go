// Package python runs Python models: one stub process for each instance,
// started, fed, watched and reaped here.
//
//	Starting ──▶ Ready ◀──▶ Busy
//	   │           │          │
//	   │           ▼          ▼
//	   ├─────────▶ Lost ◀─────┘      gone without having been told to go
//	   ▼           │
//	 Stopped ◀─────┴── (from any)    told to go
//
// An Instance outlives its stubs. Each stub process is a life with a number of
// its own; whatever belongs to it (channel, loans, tasks) is in a life value
// and goes with it.
//
// Program (program.go) is the seam between hosting and language: Supervisor, Model,
// Instance and life know of a program only what it says there. code (code.go) is that
// of Python.
//
// Trust: what a stub writes is checked in ipc and in answer.go. A stub that
// breaks the protocol is killed. Requests inside a stub that is lost are
// answered with `Stub process '<instance>' is not healthy.`; a batch that the
// stub had not taken goes back to the scheduler.
//
// Locks: the channel's receive lock, then the scheduler's, then Instance.mu,
// then the channel's send lock. Nothing is handed up while Instance.mu is held.
package python
