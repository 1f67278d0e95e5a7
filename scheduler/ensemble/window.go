package ensemble

import (
	"time"

	"github.com/nereid-serving/nereid/boundary"
)

// patienceWindow is how long no response of a step may come before steps keep no
// place any more.
const patienceWindow = 5 * time.Second

// window is the flow's part in the windows of decoupled models, which may have so
// many responses on their way at once. A response keeps its place until the client
// has what was made from it: a slow step, or a slow client, slows the model that
// feeds it. But what is made from it may need that very model, which sends and
// waits for a place. So steps keep no place where the ensemble calls a decoupled
// model twice, and none any more after patienceWindow without a response of a step.
type window struct {
	loose    bool
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
		w.timer = boundary.AfterFunc(f.ensemble.config.Log, boundary.Scheduler, patienceWindow, f.look, nil)
	}
	w.occupied[run] = struct{}{}
}

// vacateLocked gives the place of a step up.
func (f *flow) vacateLocked(run *stepRun) {
	delete(f.window.occupied, run)
	run.slot.Release()
	run.slot = nil
}

// look has steps keep no place any more if nothing has moved.
func (f *flow) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.window
	switch {
	case w.closed || w.loose:
		return
	case w.moves != w.seen || len(w.occupied) == 0:
		w.seen = w.moves
		w.timer.Reset(patienceWindow)
		return
	}
	w.loose = true
	for run := range w.occupied {
		f.vacateLocked(run)
	}
}

func (f *flow) closeWindow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.closed = true
	if f.window.timer != nil {
		f.window.timer.Stop()
	}
}
