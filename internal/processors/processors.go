// Package processors adapts GOMAXPROCS, the number of processors of the Go runtime, to the load.
//
// A goroutine that becomes ready while a processor is idle wakes another thread. On a busy machine
// that thread takes a core from models and clients, and costs more than it does. Follow therefore
// looks for the smallest number of processors that leaves no core idle.
package processors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var (
	number  atomic.Int32 // the GOMAXPROCS of Follow; 0 if it does not run
	waiting atomic.Int32 // clients' requests between Begin and End
)

// Begin and End enclose the time in which a client's request waits for its responses.
func Begin() { waiting.Add(1) }

// End is called once for each call of Begin.
func End() { waiting.Add(-1) }

// Number returns GOMAXPROCS, without the runtime's lock while Follow runs.
func Number() int {
	if n := number.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// MaySpin reports whether a goroutine may keep its processor while it waits. It may not keep the
// only one while several requests wait, because the runtime does not look for network input until a
// processor is idle.
func MaySpin() bool { return number.Load() != 1 || waiting.Load() <= 1 }

// Limits of Follow.
const (
	period     = 100 * time.Millisecond // between decisions
	calmPeriod = time.Second            // the same while the server does next to nothing
	calm       = 0.01                   // processors in use
	shortage   = 0.15                   // idle cores of a machine that has none to spare
	spare      = 0.25                   // idle cores of a machine that has some to spare
	full       = 0.92                   // share of the processors in use above which the number rises
	enough     = 0.85                   // share of one processor fewer below which the number falls
	patience   = 10                     // decisions between two reductions
	lateWait   = 1e-3                   // seconds for which a goroutine should not wait for a processor
	manyLate   = 3                      // such waits in a period, and
	lateShare  = 0.1                    // their share of all waits, that show a lack of processors
	lateMemory = 100                    // decisions for which that prevents a reduction
)

// load is the load since the last decision.
type load struct {
	used  float64 // processors that this process used, on average
	idle  float64 // cores of the machine that were idle, on average
	waits uint64  // goroutines that waited for a processor, of the eighth that the runtime samples
	late  uint64  // those of them that waited longer than lateWait
}

// controller decides on the number of processors.
type controller struct {
	most, now int
	steady    int // decisions since the last change
	punctual  int // decisions since many goroutines were late
}

// decide returns the next number of processors. It rises when goroutines wait long for a processor,
// or when the server uses its processors and the machine has an idle core. A machine without idle
// cores gains nothing from another processor otherwise, so the number falls until a core is idle.
func (c *controller) decide(w load) int {
	c.steady++
	c.punctual++
	late := w.late >= manyLate && float64(w.late) > lateShare*float64(w.waits)
	if late {
		c.punctual = 0
	}
	next := c.now
	switch {
	case late, w.idle >= spare && w.used > full*float64(c.now):
		next = min(2*c.now, c.most)
	case c.steady < patience || c.punctual < lateMemory:
	case w.idle < shortage, w.used < enough*float64(c.now-1):
		next = max(c.now-1, 1)
	}
	if next != c.now {
		c.now, c.steady = next, 0
	}
	return next
}

// sampler measures the load. Its fields are totals at the last measurement.
type sampler struct {
	at    time.Time
	used  time.Duration // CPU time of this process
	idle  time.Duration // of all cores
	waits uint64
	late  uint64

	latencies []metrics.Sample
}

// next returns the load since the last call.
func (s *sampler) next() (load, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return load{}, err
	}
	idle, err := idleTime()
	if err != nil {
		return load{}, err
	}
	old := *s
	s.at, s.idle = time.Now(), idle
	s.used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if err := s.countWaits(); err != nil {
		return load{}, err
	}
	elapsed := float64(s.at.Sub(old.at))
	return load{
		used: float64(s.used-old.used) / elapsed, idle: float64(s.idle-old.idle) / elapsed,
		waits: s.waits - old.waits, late: s.late - old.late,
	}, nil
}

// countWaits sets waits and late.
func (s *sampler) countWaits() error {
	if s.latencies == nil {
		s.latencies = []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	}
	metrics.Read(s.latencies)
	if s.latencies[0].Value.Kind() != metrics.KindFloat64Histogram {
		return errors.ErrUnsupported
	}
	h := s.latencies[0].Value.Float64Histogram()
	s.waits, s.late = 0, 0
	for i, count := range h.Counts {
		s.waits += count
		if h.Buckets[i] >= lateWait {
			s.late += count
		}
	}
	return nil
}

// idleTime returns the time that the machine's cores have been idle since it started: the second
// number of /proc/uptime, in seconds (proc(5)). /proc/stat takes milliseconds on large machines.
func idleTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	var up, idle float64
	if _, err := fmt.Sscan(string(text), &up, &idle); err != nil { // bound: two numbers
		return 0, fmt.Errorf("read /proc/uptime: %w", err)
	}
	if idle == 0 { // some sandboxes do not know it
		return 0, errors.ErrUnsupported
	}
	return time.Duration(idle * float64(time.Second)), nil
}

// Follow adapts GOMAXPROCS until ctx ends, and calls changed after each change. It does nothing if
// the environment sets GOMAXPROCS, or where the load of the machine is unknown.
func Follow(ctx context.Context, changed func(now, most int)) {
	most := runtime.GOMAXPROCS(0)
	c := controller{most: most, now: most, punctual: lateMemory}
	s := &sampler{}
	if _, err := s.next(); err != nil || most == 1 || os.Getenv("GOMAXPROCS") != "" {
		return
	}
	number.Store(int32(most))
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		w, err := s.next()
		if err != nil {
			return
		}
		c.refresh()
		if before := c.now; c.decide(w) != before {
			c.apply()
			changed(c.now, c.most)
		}
		if w.used < calm {
			timer.Reset(calmPeriod)
		} else {
			timer.Reset(period)
		}
	}
}

// refresh reads the default again, because the limits of the container may have changed. The
// runtime updates GOMAXPROCS itself until the program sets it.
func (c *controller) refresh() {
	if c.now == c.most {
		c.most = runtime.GOMAXPROCS(0)
		c.now = c.most
		number.Store(int32(c.now))
	}
}

// apply sets GOMAXPROCS, to the default if it is not less.
func (c *controller) apply() {
	if c.now < c.most {
		number.Store(int32(c.now))
		runtime.GOMAXPROCS(c.now)
		return
	}
	runtime.SetDefaultGOMAXPROCS()
	c.refresh()
}
