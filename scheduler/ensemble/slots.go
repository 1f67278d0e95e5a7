package ensemble

import (
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// patienceSlots is how long no step may respond before all steps release the slots that they keep.
const patienceSlots = 5 * time.Second

// slotHolder keeps the slots that a flow occupies in the windows of decoupled models. A response
// keeps its slot until the client has everything computed from it: a slow step, or a slow client,
// slows the model that feeds it. But a step may need that very model, which waits for a free slot.
// So steps keep no slot where the ensemble calls a decoupled model twice, and release theirs after
// each patienceSlots without a response of any step. Responses that then wait here are charged to
// their model.
type slotHolder struct {
	keepsNoSlots bool                  // steps keep no slot
	moves        uint64                // number of responses of steps
	seen         uint64                // moves at the last look
	occupied     map[*stepRun]struct{} // bound: the slots
	timer        *time.Timer
	closed       bool
}

// occupyLocked keeps the slot of the response that a step's inputs come from.
func (f *flow) occupyLocked(run *stepRun) {
	h := &f.slots
	if h.keepsNoSlots {
		run.slot.Release()
		run.slot = nil
		return
	}
	if h.occupied == nil {
		h.occupied = make(map[*stepRun]struct{})
		h.timer = panics.AfterFunc(f.ensemble.config.Log, panics.Scheduler, patienceSlots, f.look, nil)
	}
	h.occupied[run] = struct{}{}
}

// vacateLocked releases the slot of a step.
func (f *flow) vacateLocked(run *stepRun) {
	delete(f.slots.occupied, run)
	run.slot.Release()
	run.slot = nil
}

// look releases all slots if no step has responded: the model can then send another window of
// responses before it waits again.
func (f *flow) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := &f.slots
	switch {
	case h.closed:
		return
	case h.moves == h.seen:
		for run := range h.occupied {
			f.vacateLocked(run)
		}
	}
	h.seen = h.moves
	h.timer.Reset(patienceSlots)
}

func (f *flow) closeSlots() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots.closed = true
	if f.slots.timer != nil {
		f.slots.timer.Stop()
	}
}
