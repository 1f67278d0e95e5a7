package backendtest

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Held is an instance that keeps its batches until the test ends them. It accepts one batch ahead
// and gives none back.
type Held struct {
	*Instance
	// Batches are the batches in flight. A test reads and changes them while nothing is submitted.
	Batches []*backend.Batch
}

// NewHeld returns a named instance that keeps its batches.
func NewHeld(name string) *Held { return &Held{Instance: NewInstance(name, 0)} }

// Ahead implements backend.Pipeliner.
func (h *Held) Ahead() bool { return true }

// Withdraw implements backend.Pipeliner.
func (h *Held) Withdraw() {}

// Execute implements backend.Instance.
func (h *Held) Execute(b *backend.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Batches = append(h.Batches, b)
}

// Capabilities implements backend.Instance.
func (h *Held) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: h, Pipeliner: h}
}

// EndAll ends all batches, and answers the first task of each without outputs.
func (h *Held) EndAll() {
	h.mu.Lock()
	batches := h.Batches
	h.Batches = nil
	h.mu.Unlock()
	for _, b := range batches {
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
	}
}
