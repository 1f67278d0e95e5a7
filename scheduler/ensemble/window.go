package ensemble

import (
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// patienceWindow is how long no response of a step may come before steps give up the
// places that they keep.
const patienceWindow = 5 * time.Second

// window is the flow's part in the windows of decoupled models, which may have so
// many responses on their way at once. A response keeps its place until the client
// has what was made from it: a slow step, or a slow client, slows the model that
// feeds it. But what is made from it may need that very model, which sends and
// waits for a place. So steps keep no place where the ensemble calls a decoupled
// model twice, and give theirs up after each patienceWindow without a response of a step.
// Responses that then wait here are charged to their model, and refused beyond its share.
type window struct {
	loose    bool   // steps keep no place
	moves    uint64 // responses of steps
	seen     uint64 // moves when look ran last
	occupied map[*stepRun]struct{}
	timer    *time.Timer
	closed   bool
}

// occupyLocked notes that a step keeps the place of what it is made from.
func (f *flow) occupyLocked(run *stepRun) {
	w := &f.window
	if w.loose {
		run.slot.Release()
		run.slot = nil
		return
	}
	if w.occupied == nil {
		w.occupied = make(map[*stepRun]struct{})
		w.timer = panics.AfterFunc(f.ensemble.config.Log, panics.Scheduler, patienceWindow, f.look, nil)
	}
	w.occupied[run] = struct{}{}
}

// vacateLocked gives the place of a step up.
func (f *flow) vacateLocked(run *stepRun) {
	delete(f.window.occupied, run)
	run.slot.Release()
	run.slot = nil
}

// look has steps give up their places if nothing has moved: the model can send a window of
// responses more, and waits again.
func (f *flow) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.window
	switch {
	case w.closed:
		return
	case w.moves == w.seen:
		for run := range w.occupied {
			f.vacateLocked(run)
		}
	}
	w.seen = w.moves
	w.timer.Reset(patienceWindow)
}

func (f *flow) closeWindow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.closed = true
	if f.window.timer != nil {
		f.window.timer.Stop()
	}
}
