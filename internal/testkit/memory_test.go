package testkit_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestPeakHeapSeparatesLiveFromGarbage keeps 32 MiB live, then discards 32 MiB sixteen times, and
// checks that the peak counts only the live bytes.
func TestPeakHeapSeparatesLiveFromGarbage(t *testing.T) {
	const size = 32 << 20
	var charged atomic.Int64
	var kept [][]byte
	peak := testkit.PeakHeap(charged.Load, func() {
		charged.Store(size)
		for range 8 {
			kept = append(kept, make([]byte, size/8))
		}
		runtime.GC()
		charged.Store(0)
		runtime.KeepAlive(kept)
		kept = nil
		for range 16 {
			for range 8 {
				drop = make([]byte, size/8)
			}
			runtime.GC()
		}
	})
	if peak.Live < size-size/16 || peak.Live > size+size/2 {
		t.Errorf("got %d bytes live, want about %d", peak.Live, size)
	}
	if peak.Charged != size {
		t.Errorf("got %d bytes charged, want %d", peak.Charged, size)
	}
	drop = nil
}

var drop []byte // escapes
