package mirror

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
)

// watch ends a call of the store that makes no progress.
type watch struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
	stall time.Duration
}

// watch begins to watch a call, which is given the context of the watch. The caller stops the watch.
func (m *Mirror) watch(ctx context.Context) *watch {
	w := &watch{stall: m.config.Stall}
	w.ctx, w.end = context.WithCancelCause(ctx)
	stalled := infer.Errorf(infer.Unavailable, "the store of %s has sent nothing for %s", m.config.Location, m.config.Stall)
	w.timer = boundary.AfterFunc(m.config.Log, boundary.Models, w.stall, func() { w.end(stalled) }, nil)
	return w
}

// progress says that something has come.
func (w *watch) progress() { w.timer.Reset(w.stall) }

// stop ends the watch. The context is not used any more.
func (w *watch) stop() {
	w.timer.Stop()
	w.end(nil)
}

// blame returns why the call has failed: the end of its context if that is it.
func (w *watch) blame(err error) error {
	if cause := context.Cause(w.ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

// watchedReader counts each piece that comes as progress.
type watchedReader struct {
	io.Reader
	*watch
}

// Read implements io.Reader.
func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.progress()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.blame(err)
	}
	return n, err
}
