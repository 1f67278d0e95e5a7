package measure

import "time"

// Rounds repeats once for a span, and returns the time of each call and the processor time of the
// processes. A call that begins within the span is completed. The first error ends it.
func Rounds(span time.Duration, pids []int, once func() error) (times Times, err error) {
	times.Each = make([]time.Duration, 0, 1<<16)
	before, err := CPU(pids)
	if err != nil {
		return times, err
	}
	switched, err := Switches(pids)
	if err != nil {
		return times, err
	}
	begin := time.Now()
	// Since reads one clock, and Now two.
	for last := time.Duration(0); last < span; {
		if err := once(); err != nil {
			return times, err
		}
		now := time.Since(begin)
		times.Each = append(times.Each, now-last)
		last = now
	}
	times.Wall = time.Since(begin)
	after, err := CPU(pids)
	if err != nil {
		return times, err
	}
	times.CPU = after - before
	times.Switches, err = Switches(pids)
	times.Switches -= switched
	return times, err
}

// WarmRounds is Rounds after a warm-up of a tenth of the span.
func WarmRounds(span time.Duration, pids []int, once func() error) (Times, error) {
	for end := time.Now().Add(span / 10); time.Now().Before(end); {
		if err := once(); err != nil {
			return Times{}, err
		}
	}
	return Rounds(span, pids, once)
}
