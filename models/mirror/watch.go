package mirror

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/panics"
)

// leastBytes is the progress that a body must make in each period unless it ends: a trickling store
// would block one of the few slots for copies forever.
const leastBytes = 64 << 10

// leastObjects is the progress that a listing must make in each period unless it ends: loads wait
// for it.
const leastObjects = 100

// mostListing bounds a listing as a whole. The maximum of 1,048,576 objects takes a tenth of it.
const mostListing = time.Hour

// watch ends a call of the store that makes no progress for a period. One goroutine makes the call
// and uses the watch.
type watch struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
	stall time.Duration
	until time.Time    // the end of the period
	came  atomic.Int64 // bytes of a body in this period; the timer reads them
	named atomic.Int64 // objects of a listing, likewise
}

// watch begins to watch a call, which gets the context of the watch. The caller stops the watch.
func (f *fetcher) watch(ctx context.Context) *watch {
	w := &watch{stall: f.config.Stall}
	w.ctx, w.end = context.WithCancelCause(ctx)
	w.until = time.Now().Add(w.stall)
	w.timer = panics.AfterFunc(f.config.Log, panics.Models, w.stall, func() {
		if came := w.came.Load(); came > 0 {
			w.end(infer.Errorf(infer.Unavailable, "the store of %s has sent %d bytes of an object in %s, at least %d are required", f.config.Location, came, w.stall, leastBytes))
			return
		}
		if named := w.named.Load(); named > 0 {
			w.end(infer.Errorf(infer.Unavailable, "the store of %s has listed %d objects in %s, at least %d are required", f.config.Location, named, w.stall, leastObjects))
			return
		}
		w.end(infer.Errorf(infer.Unavailable, "the store of %s has sent nothing for %s", f.config.Location, w.stall))
	}, nil)
	return w
}

// progress begins another period.
func (w *watch) progress() {
	w.came.Store(0)
	w.named.Store(0)
	w.until = time.Now().Add(w.stall)
	w.timer.Reset(w.stall)
}

// received records received bytes of a body.
func (w *watch) received(n int) {
	if w.came.Add(int64(n)) >= leastBytes {
		w.progress()
	}
}

// listed records a received object of a listing.
func (w *watch) listed() {
	if w.named.Add(1) >= leastObjects {
		w.progress()
	}
}

// limit ends the call after a fixed time, whatever progress it makes. The caller calls stop at the
// end of the call.
func (w *watch) limit(log zerolog.Logger, location objectstore.Location, most time.Duration) (stop func()) {
	timer := panics.AfterFunc(log, panics.Models, most, func() {
		w.end(infer.Errorf(infer.Unavailable, "the store of %s has not ended its listing in %s", location, most))
	}, nil)
	return func() { timer.Stop() }
}

// apart calls f, whose time does not count: the period continues afterwards.
func (w *watch) apart(f func()) {
	left := time.Until(w.until)
	w.timer.Stop()
	f()
	w.until = time.Now().Add(left)
	w.timer.Reset(left)
}

// stop ends the watch. The context is not used afterwards.
func (w *watch) stop() {
	w.timer.Stop()
	w.end(nil)
}

// blame returns why the call has failed: the cause of the watch's end if it has ended.
func (w *watch) blame(err error) error {
	if cause := context.Cause(w.ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

// watchedReader is a body that reports its progress to the watch.
type watchedReader struct {
	io.Reader
	*watch
}

// Read implements io.Reader.
func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.received(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.blame(err)
	}
	return n, err
}
