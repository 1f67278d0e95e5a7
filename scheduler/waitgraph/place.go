package waitgraph

import "github.com/nereid-serving/nereid/backend"

// Waiter is a request as its scheduler knows it.
type Waiter interface {
	Model() string // for error texts
	Where() Place
	// Station is what it waits for while it is queued.
	Station() Station
	// TakeBack takes the request from its queue, if it waits.
	TakeBack() bool
	// Out counts a request out that was accepted, has been taken back and is refused to
	// its sender.
	Out()
	// Refuse answers a request that has been taken back with an error.
	Refuse(err error)
}

// Station is a set of instances for any of which requests wait: those of a
// scheduler, or some of them.
type Station interface {
	// Look returns what the instances execute, a count of instances that came and
	// went, and whether one is idle, or is being restarted.
	Look() (places []Place, changes uint64, free bool)
}

// Batch is a batch that an instance has, or had.
type Batch interface {
	Model() string // for error texts
	Where() Place
	// Members are the tasks of the batch; the Graph looks at their requests alone.
	Members() []*backend.Task
}

// Place is where a request was, or a batch, and its counts, which tell whether
// it has moved.
type Place struct {
	Batch Batch // that it is in, or was in last; nil if there was none
	Where Whereabouts
	Turns uint32 // executions begun
	Sent  uint32 // responses, of BLS requests
}

// Whereabouts is the part of its way that a request or a batch is on.
type Whereabouts uint8

// The parts of the way. A batch is Executed or Elsewhere.
const (
	Elsewhere Whereabouts = 0 // on its way, or done with its instance
	Queued    Whereabouts = 1
	Executed  Whereabouts = 2
	Over      Whereabouts = 3 // or about to be: its client has gone
)
