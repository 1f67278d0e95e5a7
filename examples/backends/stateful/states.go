package stateful

import (
	"sync"
	"time"

	"github.com/nereid-serving/nereid/sdk"
)

// key is a correlation id: a number or a string.
type key struct {
	number uint64
	text   string
}

// states holds the state of each sequence of one instance. The server sends all requests of a
// sequence to the same instance, and an instance executes one batch at a time; the timer, which
// frees idle states, runs concurrently.
type states struct {
	most, size int
	idle       time.Duration // 0: for ever

	mu     sync.Mutex // held for a whole batch
	of     map[key]*state
	free   []*state    // given up, to be used again
	timer  *time.Timer // nil while there is no state
	closed bool
}

type state struct {
	values []float32
	used   time.Time
}

func newStates(most, size int, idle time.Duration) *states {
	return &states{most: most, size: size, idle: idle, of: make(map[key]*state, most)}
}

// takeLocked returns the state of a sequence, with zeros if it starts.
func (s *states) takeLocked(k key, start bool, now time.Time) (*state, error) {
	found := s.of[k]
	switch {
	case found == nil && !start:
		return nil, sdk.Errorf(sdk.InvalidArg, "the sequence has no state: it has been idle for too long, or never started")
	case found == nil:
		if found = s.roomLocked(now); found == nil {
			return nil, sdk.Errorf(sdk.Unavailable, "Too many simultaneous connections")
		}
		s.of[k] = found
	}
	if start {
		clear(found.values)
	}
	found.used = now
	if s.timer == nil && s.idle > 0 && !s.closed {
		s.timer = time.AfterFunc(s.idle, s.expire)
	}
	return found, nil
}

// expire frees the states that have been idle for too long, and sets the timer for the next one.
func (s *states) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	next := s.expireLocked(time.Now())
	if len(s.of) > 0 && !s.closed {
		s.timer = time.AfterFunc(next, s.expire)
	} else {
		s.free = nil
	}
}

// expireLocked frees states that have been idle for too long, with their memory. It returns the
// time until the next state may expire.
func (s *states) expireLocked(now time.Time) (next time.Duration) {
	next = s.idle
	for k, old := range s.of {
		if left := s.idle - now.Sub(old.used); left > 0 {
			next = min(next, left)
		} else {
			delete(s.of, k)
		}
	}
	return next
}

// close frees all states.
func (s *states) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.of, s.free = nil, nil
}

// roomLocked returns memory for another state. If there is no room it expires idle states at once.
func (s *states) roomLocked(now time.Time) *state {
	if len(s.of) >= s.most && s.idle > 0 {
		s.expireLocked(now)
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

// giveUpLocked frees the state of a sequence.
func (s *states) giveUpLocked(k key) {
	if old := s.of[k]; old != nil {
		delete(s.of, k)
		s.free = append(s.free, old)
	}
}
