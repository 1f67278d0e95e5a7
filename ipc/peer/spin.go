package peer

import "time"

const (
	shortestPause = 4
	longestPause  = 1024
	cleanSpins    = 64
	// longestWait is how many budgets a wait counts at most, so that one long pause does not keep a burst after it
	// from spinning.
	longestWait = 8
	// slowYield is how long a yield takes that gave the core to a thread which keeps it. It is below the server's limit:
	// where both sides are disturbed this one gives up first.
	slowYield = int64(50 * time.Microsecond)
)

// Spin decides before each wait whether to look for the next frame for a moment before sleeping, and learns from it. The
// rules are docs/protocol.md's, "Spinning". It is used by the goroutine that reads.
type Spin struct {
	budget    int64 // ns
	average   int64 // of the waits, ns
	pause     int   // waits to sit out
	nextPause int
	clean     int
}

// NewSpin makes a Spin with a budget, 0 for none.
func NewSpin(budget time.Duration) Spin { return Spin{budget: int64(budget), nextPause: shortestPause} }

// worthwhile is asked once for each wait: is the next frame likely to come within the budget?
func (s *Spin) worthwhile() bool {
	if s.pause > 0 {
		s.pause--
		return false
	}
	return s.average < s.budget
}

// waited learns how long it took until the frame was published, without the time to wake up.
func (s *Spin) waited(ns int64) {
	s.average += (min(max(ns, 0), s.budget*longestWait) - s.average) >> 3
}

// slowed reports whether a yield of this duration gave the core to a thread that keeps it. It did not if a frame is there that was published
// age ns ago, just now: the server and its client had the core, and made the frame.
func slowed(yield int64, there bool, age int64) bool {
	return yield > slowYield && !(there && age <= slowYield)
}

// slow: a yield was slow, so some waits are sat out, more each time.
func (s *Spin) slow() {
	s.pause = s.nextPause
	s.nextPause = min(s.nextPause*2, longestPause)
	s.clean = 0
}

// cleaned: a spin passed without a slow yield.
func (s *Spin) cleaned() {
	if s.clean++; s.clean == cleanSpins {
		s.clean = 0
		s.nextPause = max(s.nextPause/2, shortestPause)
	}
}
