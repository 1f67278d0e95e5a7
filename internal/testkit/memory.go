package testkit

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Allocated returns how many bytes of the heap are allocated while f runs.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const (
	// chargedApart is the interval at which PeakHeap reads the charged bytes.
	chargedApart = 100 * time.Microsecond
	// watchedPercent is the GC percent while PeakHeap watches: a collection, and with it a
	// measurement, happens each time the heap has grown by a tenth.
	watchedPercent = 10
	// ballastBytes keeps collections of a small heap some MiB apart.
	ballastBytes = 32 << 20
)

// Peak holds the largest amounts at any moment, in bytes above those at the start.
type Peak struct {
	Live    int64 // of reachable objects on the Go heap, and of stacks
	Charged int64
}

// PeakHeap runs f and returns the peaks of the live heap and of charged, which returns what an
// account says is taken; it must be cheap and safe for concurrent use. All goroutines of the
// process count, so the clients of a server under test should be another process. Garbage does
// not count. Calls must not overlap.
func PeakHeap(charged func() int64, f func()) Peak {
	defer debug.SetGCPercent(debug.SetGCPercent(watchedPercent))
	ballast := make([]byte, ballastBytes) // never touched, so it costs no memory
	defer runtime.KeepAlive(ballast)
	runtime.GC()
	live, _ := liveHeap()
	before := Peak{Live: live, Charged: charged()}
	stop, done := make(chan struct{}), make(chan Peak) // closed below; one value from the goroutine
	go func() { done <- watchHeap(charged, stop) }()
	f()
	runtime.GC()
	close(stop)
	peak := <-done
	return Peak{Live: max(peak.Live-before.Live, 0), Charged: max(peak.Charged-before.Charged, 0)}
}

// watchHeap returns the absolute peaks until stop is closed.
func watchHeap(charged func() int64, stop <-chan struct{}) (peak Peak) {
	seen := uint64(0)
	for {
		peak.Charged = max(peak.Charged, charged())
		if live, cycles := liveHeap(); cycles != seen {
			seen = cycles
			peak.Live = max(peak.Live, live)
		}
		select {
		case <-stop:
			return peak
		case <-time.After(chargedApart):
		}
	}
}

// liveHeap returns the bytes that the latest collection found reachable, with the stacks of all
// goroutines, and the number of collections.
func liveHeap() (bytes int64, cycles uint64) {
	samples := [...]metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples[:])
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64()), samples[2].Value.Uint64()
}

// LiveHeap collects the heap and returns the bytes of live objects.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC() // objects in a sync.Pool survive the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ResidentBytes returns the resident memory of a process.
func ResidentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
