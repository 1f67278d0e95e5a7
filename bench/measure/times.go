package measure

import (
	"slices"
	"time"
)

// Times holds the duration of each of a number of requests, and their total cost.
type Times struct {
	Each []time.Duration // in any order
	Wall time.Duration   // from the beginning of the first to the end of the last
	CPU  time.Duration   // of the measured processes
	// Switches is the number of context switches; see the function Switches.
	Switches int
}

// Add adds the times of another round.
func (t *Times) Add(other Times) {
	t.Each = append(t.Each, other.Each...)
	t.Wall += other.Wall
	t.CPU += other.CPU
	t.Switches += other.Switches
}

// Quantile returns the time within which the given share of the requests, 0 to 1, finished, or 0
// without requests.
func (t *Times) Quantile(share float64) time.Duration {
	if len(t.Each) == 0 {
		return 0
	}
	slices.Sort(t.Each)
	return t.Each[min(int(share*float64(len(t.Each))), len(t.Each)-1)]
}

// Rate returns requests per second.
func (t *Times) Rate() float64 {
	if t.Wall <= 0 {
		return 0
	}
	return float64(len(t.Each)) / t.Wall.Seconds()
}

// CPUEach returns the processor time per request.
func (t *Times) CPUEach() time.Duration {
	if len(t.Each) == 0 {
		return 0
	}
	return t.CPU / time.Duration(len(t.Each))
}

// SwitchesEach returns the context switches per request.
func (t *Times) SwitchesEach() float64 {
	if len(t.Each) == 0 {
		return 0
	}
	return float64(t.Switches) / float64(len(t.Each))
}
