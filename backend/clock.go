package backend

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC in ns, the clock of Report.
func Now() int64 { return epochNanos + int64(time.Since(epoch)) }

var epoch, epochNanos = func() (time.Time, int64) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Now(), ts.Nano()
}()
