package stateful

import (
	"time"

	"github.com/nereid-serving/nereid/sdk"
)

// key is a correlation id: a number or a text.
type key struct {
	number uint64
	text   string
}

// states has the state of each sequence of one instance. The server sends all requests of a sequence to the same one, and
// an instance executes one batch at a time: there is no lock.
type states struct {
	most, size int
	idle       time.Duration
	of         map[key]*state
	free       []*state // given up, to be used again
}

type state struct {
	values []float32
	used   time.Time
}

func newStates(most, size int, idle time.Duration) *states {
	return &states{most: most, size: size, idle: idle, of: make(map[key]*state, most)}
}

// take returns the state of a sequence, zeros if it starts.
func (s *states) take(k key, start bool, now time.Time) (*state, error) {
	found := s.of[k]
	switch {
	case found == nil && !start:
		return nil, sdk.Errorf(sdk.InvalidArg, "the sequence has no state: it has been idle for too long, or never started")
	case found == nil:
		if found = s.room(now); found == nil {
			return nil, sdk.Errorf(sdk.Unavailable, "Too many simultaneous connections")
		}
		s.of[k] = found
	}
	if start {
		clear(found.values)
	}
	found.used = now
	return found, nil
}

// room finds memory for one state more, that of a sequence that has been idle for too long if need be.
func (s *states) room(now time.Time) *state {
	if len(s.of) >= s.most {
		for k, old := range s.of {
			if s.idle > 0 && now.Sub(old.used) >= s.idle {
				s.giveUp(k)
			}
		}
	}
	switch n := len(s.free); {
	case len(s.of) >= s.most:
		return nil
	case n > 0:
		last := s.free[n-1]
		s.free = s.free[:n-1]
		return last
	}
	return &state{values: make([]float32, s.size)}
}

// giveUp forgets a sequence.
func (s *states) giveUp(k key) {
	if old := s.of[k]; old != nil {
		delete(s.of, k)
		s.free = append(s.free, old)
	}
}
