package bench

import (
	"math"
	"math/bits"
	"time"
)

// subBuckets is the number of buckets per power of two, for a precision of 1/128.
const subBuckets = 128

// histogram counts latencies.
type histogram struct {
	counts []uint64
	total  uint64
	sum    float64
	most   time.Duration
}

// bucketOf returns the index of the bucket for a value in ns.
func bucketOf(ns uint64) int {
	if ns < 2*subBuckets {
		return int(ns)
	}
	shift := bits.Len64(ns) - 8 // so that ns>>shift has 8 bits, the highest of them set
	return shift*subBuckets + int(ns>>shift)
}

// middleOf returns the value in the middle of a bucket.
func middleOf(bucket int) time.Duration {
	if bucket < 2*subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	low := uint64(bucket-shift*subBuckets) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	at := bucketOf(uint64(max(d, 0)))
	for at >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, at+1-len(h.counts))...) // bound: 57*subBuckets
	}
	h.counts[at]++
	h.total++
	h.sum += float64(d)
	h.most = max(h.most, d)
}

func (h *histogram) merge(other *histogram) {
	if missing := len(other.counts) - len(h.counts); missing > 0 {
		h.counts = append(h.counts, make([]uint64, missing)...) // bound: 57*subBuckets
	}
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.sum += other.sum
	h.most = max(h.most, other.most)
}

// quantile returns the value that a share q of all values does not exceed, or 0 without values.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.total)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank && n > 0 {
			return min(middleOf(i), h.most)
		}
	}
	return 0
}

func (h *histogram) mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.total))
}
