package body_test

import (
	"testing"

	"github.com/nereid-serving/nereid/server/rest/body"
)

func TestNextSizeGrowsInSteps(t *testing.T) {
	for _, limit := range []int64{body.FirstStep + 1, 8 * body.FirstStep, 8*body.FirstStep + 1, 36 << 20, 64<<20 + 1, 1 << 31} {
		last := int64(0)
		for size, steps := int64(body.FirstStep), 0; size < limit; steps++ {
			last = size
			if size = body.NextSize(size, limit); size <= last || size > limit || last < size/8 || steps > 8 {
				t.Fatalf("limit %d: got %d after %d in step %d, want up to eight times as much", limit, size, last, steps)
			}
		}
		if limit > 64*body.FirstStep && last > limit/8+1 {
			t.Errorf("limit %d: got %d last, want an eighth", limit, last)
		}
	}
}
