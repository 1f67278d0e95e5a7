package peer

import "time"

const (
	shortestPause = 4
	longestPause  = 1024
	cleanSpins    = 64
	// longestWait is the maximum duration, in budgets, that counts for a wait, so that one long pause
	// does not keep a following burst from spinning.
	longestWait = 8
	// slowYield is the duration of a yield that gave the core to a thread which keeps it. It is below
	// the server's limit, so that this side gives up first if both are disturbed.
	slowYield = int64(50 * time.Microsecond)
)

// Spin decides before each wait whether to poll for the next frame before sleeping, and learns from
// each wait. docs/protocol.md has the rules under "Spinning". Only the goroutine that reads uses
// it.
type Spin struct {
	budget    int64 // ns
	average   int64 // of the waits, ns
	pause     int   // waits to sit out
	nextPause int
	clean     int
}

// NewSpin returns a Spin with a budget; 0 disables it.
func NewSpin(budget time.Duration) Spin { return Spin{budget: int64(budget), nextPause: shortestPause} }

// worthwhile reports whether the next frame is likely to arrive within the budget. It is called
// once for each wait.
func (s *Spin) worthwhile() bool {
	if s.pause > 0 {
		s.pause--
		return false
	}
	return s.average < s.budget
}

// waited records the time until the frame was published, without the time to wake up.
func (s *Spin) waited(ns int64) {
	s.average += (min(max(ns, 0), s.budget*longestWait) - s.average) >> 3
}

// slowed reports whether a yield of this duration gave the core to a thread that keeps it. It did
// not if there is a frame that was published just now, age ns ago: the server and its client had
// the core to create it.
func slowed(yield int64, there bool, age int64) bool {
	return yield > slowYield && !(there && age <= slowYield)
}

// slow records a slow yield: some waits are skipped, more each time.
func (s *Spin) slow() {
	s.pause = s.nextPause
	s.nextPause = min(s.nextPause*2, longestPause)
	s.clean = 0
}

// cleaned records a spin without a slow yield.
func (s *Spin) cleaned() {
	if s.clean++; s.clean == cleanSpins {
		s.clean = 0
		s.nextPause = max(s.nextPause/2, shortestPause)
	}
}
