package grpc

import (
	"math"
	"time"
	_ "unsafe" // for go:linkname
)

// resetGrace is the time from a call's deadline until the library resets its stream.
const resetGrace = 2 * time.Second

// timeAfterFunc is the function by which the library's server resets a stream at its deadline. The
// reset would overtake the status that the handler sends at the same moment, and reach clients
// whose own deadline has not passed: they report CANCELLED or INTERNAL. No option disables it.
// Contexts still end at the deadline. This applies to every gRPC server of the process.
//
//go:linkname timeAfterFunc google.golang.org/grpc/internal.TimeAfterFunc
var timeAfterFunc func(d time.Duration, f func()) timer

// timer has the methods of the library's type in their order.
type timer interface{ Stop() bool }

func init() {
	after := timeAfterFunc
	timeAfterFunc = func(d time.Duration, f func()) timer {
		return after(min(d, math.MaxInt64-resetGrace)+resetGrace, f)
	}
}
