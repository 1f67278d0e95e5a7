package bls

import (
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestUnreadStreamsWaitOnlyAlone checks that an unread stream keeps the called model waiting only
// while no other request of the same execution is in flight.
func TestUnreadStreamsWaitOnlyAlone(t *testing.T) {
	type request struct {
		batch  uint64
		stream bool
		ended  bool // before the next request
	}
	for _, c := range []struct {
		name     string
		requests []request
		tight    string // streams whose responses count in their windows
	}{
		{"alone", []request{{4, true, false}}, "[0]"},
		{"a request beside it", []request{{4, true, false}, {4, false, false}}, "[]"},
		{"a request before it", []request{{4, false, false}, {4, true, false}}, "[]"},
		{"a request that has ended", []request{{4, false, true}, {4, true, false}}, "[1]"},
		{"a request that will have ended", []request{{4, true, false}, {4, false, true}, {5, false, false}}, "[]"},
		{"of other executions", []request{{4, true, false}, {5, true, false}, {3, false, false}}, "[0 1]"},
		{"two streams", []request{{4, true, false}, {4, true, false}, {5, true, false}}, "[2]"},
		{"not known for what", []request{{0, true, false}, {0, false, false}}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.session.last = 5
			released := make(map[int]int)
			say := func(i int) {
				b.host.Request(i).Send(&infer.Response{Slot: onRelease(func() { released[i]++ })})
			}
			for i, r := range c.requests {
				flags := uint32(0)
				if r.stream {
					flags = ipc.InferStream
				}
				b.mustAsk(uint64(i+1), processtest.Infer{Batch: r.batch, Flags: flags}) // demands no response
				switch {
				case r.ended:
					b.host.Request(i).Send(&infer.Response{Final: true})
				case r.stream:
					say(i)
				}
			}
			tight := []int{}
			for i, r := range c.requests {
				if !r.stream {
					continue
				}
				say(i)
				switch released[i] {
				case 0:
					tight = append(tight, i)
				case 2:
				default:
					t.Errorf("%d of 2 places of stream %d were let go of", released[i], i)
				}
			}
			if got := fmt.Sprint(tight); got != c.tight {
				t.Errorf("got %s in their windows, want %s", got, c.tight)
			}
			if len(b.requests.windowed) != len(tight) {
				t.Errorf("%d streams are noted, want %d", len(b.requests.windowed), len(tight))
			}
		})
	}
}
