package sequence

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// Known is exported for the tests in package sequence_test: it returns the ids of the sequences
// that the next request may continue.
func (s *Batcher) Known() []infer.CorrelationID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ids))
}

// Remains checks an internal invariant, for the tests in package sequence_test: when all sequences
// have ended, no list and no slot refers to one. It describes the references that are left.
func (s *Batcher) Remains() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting.First != nil || s.backlog.First != nil || s.expiring.Len() != 0 {
		list = append(list, "a list has sequences")
	}
	for _, l := range s.instances.MembersLocked() {
		for _, at := range l.slots {
			if at.seq != nil {
				list = append(list, fmt.Sprintf("slot %d of %s is taken", at.number, l.Instance().Name()))
			}
		}
	}
	return list
}
