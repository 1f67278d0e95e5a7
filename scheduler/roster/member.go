package roster

import "github.com/nereid-serving/nereid/backend"

// Member is what a Roster knows of one instance. A scheduler embeds it in the struct
// that holds what the scheduler itself keeps of the instance.
type Member struct {
	instance backend.Instance // written before the Roster gives the member out, and never again
	order    int

	// Guarded by the scheduler's mu.
	state    state
	retiring bool
	drained  func() // of Retire, until DrainLocked returns it
	changes  uint64
}

// state is whether an instance takes batches.
type state uint8

const (
	lost      state = 0 // and expected again; or met, and not available yet
	hopeless  state = 1 // lost, and not expected again soon
	available state = 2
)

// member lets a Roster reach the Member in a scheduler's struct. Types of other
// packages have the method by embedding Member alone.
func (m *Member) member() *Member { return m }

// Instance returns the instance. It needs no lock.
func (m *Member) Instance() backend.Instance { return m.instance }

// Order numbers the members as they came. It needs no lock.
func (m *Member) Order() int { return m.order }

// AvailableLocked reports whether the instance takes batches. A retiring instance may:
// its scheduler decides what it still gets.
func (m *Member) AvailableLocked() bool { return m.state == available }

// ServesLocked reports whether the instance takes new work: it is available, and not
// retiring.
func (m *Member) ServesLocked() bool { return m.state == available && !m.retiring }

// RetiringLocked reports whether the instance gets nothing new any more.
func (m *Member) RetiringLocked() bool { return m.retiring }

// HopelessLocked reports whether the instance is lost and not expected again soon.
func (m *Member) HopelessLocked() bool { return m.state == hopeless }

// ChangesLocked counts the events of the instance.
func (m *Member) ChangesLocked() uint64 { return m.changes }
