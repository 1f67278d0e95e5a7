package roster

import "github.com/nereid-serving/nereid/backend"

// Member is the roster's record of one instance. A scheduler embeds it in its own struct.
type Member struct {
	instance backend.Instance // set before the Roster returns the member, and never again
	order    int

	// Guarded by the scheduler's mu.
	state    state
	retiring bool
	drained  func() // the callback of Retire, until DrainLocked returns it
	changes  uint64
}

type state uint8

const (
	lost      state = 0 // and expected again, or not available yet
	hopeless  state = 1 // lost, and no restart is expected soon
	available state = 2
)

// member gives a Roster access to the Member in a scheduler's struct.
func (m *Member) member() *Member { return m }

// Instance returns the instance. It needs no lock.
func (m *Member) Instance() backend.Instance { return m.instance }

// Order returns the number of the member in the order of arrival. It needs no lock.
func (m *Member) Order() int { return m.order }

// AvailableLocked reports whether the instance accepts batches. It may be retiring.
func (m *Member) AvailableLocked() bool { return m.state == available }

// ServesLocked reports whether the instance is available and not retiring.
func (m *Member) ServesLocked() bool { return m.state == available && !m.retiring }

// RetiringLocked reports whether the instance gets no new work.
func (m *Member) RetiringLocked() bool { return m.retiring }

// HopelessLocked reports whether the instance is lost and no restart is expected soon.
func (m *Member) HopelessLocked() bool { return m.state == hopeless }

// ChangesLocked returns the number of events of the instance.
func (m *Member) ChangesLocked() uint64 { return m.changes }
