package roster

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
)

// embedding is a pointer to a struct in which Member is embedded.
type embedding interface{ member() *Member }

// Roster tracks the instances of one version of a model. M is a pointer to the scheduler's struct
// for an instance, which embeds Member.
type Roster[M embedding] struct {
	create func() M

	// Guarded by the scheduler's mu.
	members []M // in the order of arrival; see MembersLocked
	known   map[backend.Instance]M
	retired map[backend.Instance]bool // drained, not ended yet
	came    int                       // number of members so far
	changes uint64

	// Recomputed after each event: events are rare, but each request may read these.
	available int
	serving   int
	expects   bool
	hopeless  backend.Instance
}

// New returns an empty Roster. create makes the scheduler's struct of an instance; it is called
// with the scheduler's mu held.
func New[M embedding](create func() M) Roster[M] {
	return Roster[M]{
		create: create, expects: true,
		known: make(map[backend.Instance]M), retired: make(map[backend.Instance]bool),
	}
}

// MeetLocked returns the member of an instance, adding it as lost if it is unknown. It returns
// false for a retired instance.
func (r *Roster[M]) MeetLocked(in backend.Instance) (M, bool) {
	m, known := r.known[in]
	if known || r.retired[in] {
		return m, known
	}
	m = r.create()
	own := m.member()
	own.instance, own.order = in, r.came
	r.came++
	r.known[in] = m                  // bound: the instances
	r.members = append(r.members, m) // bound: the instances
	r.changedLocked(own)
	return m, true
}

// AvailableLocked records that a member accepts batches.
func (r *Roster[M]) AvailableLocked(m M) {
	own := m.member()
	own.state = available
	r.changedLocked(own)
}

// LostLocked records that an instance accepts no batches, and returns its member, which is added if
// it is unknown. It returns false for a retired instance.
func (r *Roster[M]) LostLocked(in backend.Instance, forGood bool) (M, bool) {
	m, ok := r.MeetLocked(in)
	if !ok {
		return m, false
	}
	own := m.member()
	own.state = lost
	if forGood {
		own.state = hopeless
	}
	r.changedLocked(own)
	return m, true
}

// RetireLocked records that an instance gets no new work, and returns its member. The scheduler
// calls DrainLocked when the work of the instance has ended. For an unknown instance it returns
// false, and the scheduler calls drained itself, with nothing locked.
func (r *Roster[M]) RetireLocked(in backend.Instance, drained func()) (M, bool) {
	m, known := r.known[in]
	if !known {
		r.retired[in] = true // bound: the instances
		r.changes++
		return m, false
	}
	own := m.member()
	own.retiring, own.drained = true, drained
	r.changedLocked(own)
	return m, true
}

// DrainLocked removes a retiring member without work, and returns its callback, which is called
// with nothing locked. It returns nil for any other member.
func (r *Roster[M]) DrainLocked(m M) (drained func()) {
	own := m.member()
	if !own.retiring || own.drained == nil {
		return nil
	}
	drained, own.drained = own.drained, nil
	if own.state == available {
		own.state = lost
	}
	delete(r.known, own.instance)
	r.retired[own.instance] = true         // bound: the instances
	kept := make([]M, 0, len(r.members)-1) // bound: the instances
	for _, other := range r.members {
		if other.member() != own {
			kept = append(kept, other)
		}
	}
	r.members = kept
	r.changedLocked(own)
	return drained
}

// ForgetLocked forgets a retired instance that has ended: no event of it follows.
func (r *Roster[M]) ForgetLocked(in backend.Instance) { delete(r.retired, in) }

// changedLocked counts a change of a member and recomputes the totals.
func (r *Roster[M]) changedLocked(own *Member) {
	own.changes++
	r.changes++
	r.available, r.serving, r.hopeless = 0, 0, nil
	r.expects = len(r.members) == 0
	for _, m := range r.members {
		other := m.member()
		switch {
		case other.state == available:
			r.available++
			if !other.retiring {
				r.serving++
			}
		case other.retiring:
		case other.state == lost:
			r.expects = true
		case r.hopeless == nil:
			r.hopeless = other.instance
		}
	}
	if r.serving > 0 || r.expects {
		r.hopeless = nil
	}
}

// MembersLocked returns the members in the order of arrival. The slice is never written to and may
// be read after unlocking.
func (r *Roster[M]) MembersLocked() []M { return slices.Clip(r.members) }

// CountAvailableLocked returns the number of available instances, including retiring ones.
func (r *Roster[M]) CountAvailableLocked() int { return r.available }

// ExpectsLocked reports whether an instance may become available soon: one is being restarted, or
// none is known yet.
func (r *Roster[M]) ExpectsLocked() bool { return r.expects }

// HopelessLocked returns a hopeless instance if no request can be executed soon, otherwise nil.
func (r *Roster[M]) HopelessLocked() backend.Instance { return r.hopeless }

// ChangesLocked returns the number of events of all instances. It never decreases.
func (r *Roster[M]) ChangesLocked() uint64 { return r.changes }

// RememberedLocked returns the number of retired instances that have not ended yet.
func (r *Roster[M]) RememberedLocked() int { return len(r.retired) }
