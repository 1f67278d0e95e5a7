package sequence

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
)

func TestAdmissionRefusesBatches(t *testing.T) {
	s := New(Config{Model: "m", Observer: &tally{}, MaxBatch: 8})
	const want = "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
	err := s.Submit(t.Context(), &infer.Request{BatchSize: 2, Correlation: infer.CorrelationID{Number: 1}}, nil)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSequenceConflictIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFixture(t, direct(1, 0, 0))
		c.run("up i; send a x S; send b x S; end i; has i b")
		const want = "sequence x for model 'm' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("the log has %s, want %s", c.log.String(), want)
		}
		c.leave()
	})
}

// TestSequenceForgetsRetiredInstances: events of a retired instance do not bring it back.
func TestSequenceForgetsRetiredInstances(t *testing.T) {
	s := New(Config{Model: "m", Observer: &tally{}, Batching: direct(1, 0, 0).Batching})
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
		s.Lost(in, true) // hopeless before its end, which is said besides
		if len(s.instances.MembersLocked()) != 0 {
			t.Errorf("known before: %v: %d instances are left", known, len(s.instances.MembersLocked()))
		}
		s.Forget(in)
		if len(s.instances.MembersLocked())+s.instances.RememberedLocked() != 0 {
			t.Errorf("known before: %v: %d instances are left, %d are remembered", known, len(s.instances.MembersLocked()), s.instances.RememberedLocked())
		}
	}
}
