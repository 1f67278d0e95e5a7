package measure_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

func TestRoundsMeasureTimeAndCPU(t *testing.T) {
	here := []int{os.Getpid()}
	for name, measure := range map[string]func(time.Duration, []int, func() error) (measure.Times, error){"Rounds": measure.Rounds, "WarmRounds": measure.WarmRounds} {
		const span = 5 * time.Millisecond
		done := 0
		times, err := measure(span, here, func() error {
			done++
			for n := range 1 << 10 {
				sink += n
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var sum time.Duration
		for _, each := range times.Each {
			sum += each
		}
		warm := done - len(times.Each)
		if len(times.Each) == 0 || (warm > 0) != (name == "WarmRounds") {
			t.Errorf("%s: %d rounds, of which %d count", name, done, len(times.Each))
		}
		if sum < span || sum > times.Wall || times.CPU <= 0 {
			t.Errorf("%s: rounds of %v in %v with %v of a processor, want at least %v", name, sum, times.Wall, times.CPU, span)
		}
		failure := errors.New("the third")
		done = 0
		if _, err := measure(time.Hour, here, func() error {
			if done++; done == 3 {
				return failure
			}
			return nil
		}); !errors.Is(err, failure) || done != 3 {
			t.Errorf("%s: got error %v after %d rounds, want %v after 3", name, err, done, failure)
		}
		if _, err := measure(0, []int{1 << 27}, func() error { return nil }); err == nil {
			t.Errorf("%s of a process that is not there: got no error, want one", name)
		}
	}
}
