package process

import (
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// Limits that tests reach.
const (
	WindowResponses = windowResponses
	WindowBytes     = windowBytes
	HopelessLosses  = hopelessLosses
	HopelessStarts  = hopelessStarts
	MapFrom         = mapFrom
)

// Held is what an instance's process and the server hold of each other. Nothing of it is left when
// all requests are answered and all responses released.
type Held struct {
	Loans, Descriptors   int // of the server's pool, and of the process's arena
	Batches, Withdrawn   int
	Requests             int   // to other models
	Copied               int64 // bytes of inputs of these
	Regions, Allocations int   // of clients, that the process knows
}

// Held counts the holdings of the present process; false without a process that accepts batches.
func (in *Instance) Held() (h Held, alive bool) {
	l := in.current.Load()
	if l == nil {
		return h, false
	}
	h.Loans, _ = l.loans.Count()
	h.Descriptors = l.channel.Arena().Outstanding()
	h.Requests, h.Copied = l.bls.InFlight()
	h.Regions, h.Allocations = l.mapped.Count(), l.announced.Count()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Batches = l.count
	if l.asked != (withdrawal{}) {
		h.Withdrawn = 1
	}
	return h, true
}

// Doom ends the instance's process, and each later one once it is ready.
func (in *Instance) Doom() { in.doom() }

// LimitExecution limits the execution of further batches of the present process.
func (in *Instance) LimitExecution(limit time.Duration) {
	l := in.current.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.executeLimit = limit
}

// LimitReady changes the model's ReadyTimeout.
func (in *Instance) LimitReady(limit time.Duration) { in.model.settings.ReadyTimeout = limit }

// NumberBatches makes n the number of the present process's latest batch.
func (in *Instance) NumberBatches(n uint64) {
	l := in.current.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number = n
}

// SpoilTimer makes the next goroutine panic that takes or ends a batch of the present process.
func (in *Instance) SpoilTimer() {
	l := in.current.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = new(panics.Limit)
}

// SpoilEnd makes the end of the present process panic. The caller calls finish afterwards.
func (in *Instance) SpoilEnd() (finish func()) {
	l := in.current.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	output := l.output
	l.output = nil
	return func() {
		output.Finish()
		l.calls.Close(false)
	}
}
