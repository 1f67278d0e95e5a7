package tracing

import "sync"

// setting samples a model's requests. Level, rate and frequency do not change: a change makes
// another setting.
type setting struct {
	level           Level
	rate, frequency uint32

	mu    sync.Mutex
	left  int32  // of the count; below 0: no limit
	seen  uint64 // requests
	begun uint64 // traces

	// The recorder's goroutine alone uses these.
	kept     uint64 // complete traces
	gathered []byte // text of traces that have not been written; bound: maxGathered and one tree
	pieces   uint32 // how many
	retired  bool   // another setting has replaced it
}

func newSetting(v values) *setting {
	return &setting{level: v.level, rate: v.rate, frequency: v.frequency, left: v.count}
}

// values returns the values in force.
func (s *setting) values() values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return values{level: s.level, rate: s.rate, count: s.left, frequency: s.frequency}
}

// sample reports whether a request is traced, and whether it was the last of the count. A request
// with a trace context always is, and does not count.
func (s *setting) sample(brought bool) (yes, last bool) {
	if s.level == Off {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rate != 0 && s.left != 0 {
		s.seen++
		if s.seen%uint64(s.rate) == 0 {
			if s.left > 0 {
				s.left--
			}
			s.begun++
			return true, s.left == 0
		}
	}
	if brought {
		s.begun++
	}
	return brought, false
}

// usedUp reports whether the count is used up and all its traces are complete.
func (s *setting) usedUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == 0 && s.kept == s.begun
}
