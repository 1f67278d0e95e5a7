package measure

import (
	"slices"
	"time"
)

// Times are how long each of some requests took, and what all of them cost.
type Times struct {
	Each []time.Duration // in any order
	Wall time.Duration   // from the beginning of the first to the end of the last
	CPU  time.Duration   // processor time of what was measured
	// Switches is how often a processor went from one thread to another one meanwhile, see Switches.
	Switches int
}

// Add takes another round into account.
func (t *Times) Add(other Times) {
	t.Each = append(t.Each, other.Each...)
	t.Wall += other.Wall
	t.CPU += other.CPU
	t.Switches += other.Switches
}

// Quantile returns the time that the given share of the requests, 0 to 1, did
// not exceed; 0 if there were none.
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

// CPUEach returns the processor time of one request.
func (t *Times) CPUEach() time.Duration {
	if len(t.Each) == 0 {
		return 0
	}
	return t.CPU / time.Duration(len(t.Each))
}

// SwitchesEach returns the switches of one request.
func (t *Times) SwitchesEach() float64 {
	if len(t.Each) == 0 {
		return 0
	}
	return float64(t.Switches) / float64(len(t.Each))
}
