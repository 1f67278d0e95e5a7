package sequence

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/backendtest"
)

// TestSequenceForgetsRetiredInstances checks that later events of a retired instance do not add it
// again.
func TestSequenceForgetsRetiredInstances(t *testing.T) {
	s := New(Config{Model: "m", Observer: &Tally{}, Batching: Direct(1, 0, 0).Batching})
	for _, known := range []bool{true, false} {
		in := backendtest.NewInstance("i", 0)
		if known {
			s.Available(in)
		}
		drained := false
		s.Retire(in, func() { drained = true })
		s.Lost(in, false)
		s.Available(in)
		if !drained || len(s.instances.MembersLocked()) != 0 {
			t.Errorf("known before: %v: drained: %v, %d instances are left", known, drained, len(s.instances.MembersLocked()))
		}
		s.Lost(in, true)
		s.Lost(in, true) // hopeless can be reported before the end and again at the end
		if len(s.instances.MembersLocked()) != 0 {
			t.Errorf("known before: %v: %d instances are left", known, len(s.instances.MembersLocked()))
		}
		s.Forget(in)
		if len(s.instances.MembersLocked())+s.instances.RememberedLocked() != 0 {
			t.Errorf("known before: %v: %d instances are left, %d are remembered", known, len(s.instances.MembersLocked()), s.instances.RememberedLocked())
		}
	}
}
