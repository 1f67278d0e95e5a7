package process

import (
	"os"
	"testing"
	"time"
)

func TestUsageIsReadFromStat(t *testing.T) {
	line := "4711 (a b) (c) S 1 4711 4711 0 -1 4194560 2170 0 0 0 150 25 9 9 20 0 3 0 100 400000 321 18446744073709551615 1 1 0\n"
	cpu, resident, err := parseUsage([]byte(line))
	if want := 321 * int64(os.Getpagesize()); err != nil || cpu != 1750*time.Millisecond || resident != want {
		t.Errorf("got %v and %d bytes (%v), want 1.75s and %d", cpu, resident, err, want)
	}
	for _, broken := range []string{"", "1 (a) S", "1 (a) S 1 1 1 0 -1 4 2 0 0 0 x 25 9 9 20 0 3 0 100 4 3 1"} {
		if _, _, err := parseUsage([]byte(broken)); err == nil {
			t.Errorf("%q was read, want an error", broken)
		}
	}
	if cpu, resident, err := UsageOf(os.Getpid()); err != nil || resident < 1<<20 || cpu < 0 {
		t.Errorf("this process: got %v and %d bytes (%v), want 1 MiB at least", cpu, resident, err)
	}
}
