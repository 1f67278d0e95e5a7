package waitgraph

import "github.com/nereid-serving/nereid/backend"

// Waiter is a request as its scheduler sees it.
type Waiter interface {
	Model() string // for error texts
	Position() Position
	// Instances returns the instances that it waits for while it is queued.
	Instances() InstanceSet
	// TakeBack removes the request from its queue, and reports whether it was queued.
	TakeBack() bool
	// Out counts an accepted request that has been taken back and is rejected by an error of its
	// call.
	Out()
	// Refuse answers a request that has been taken back with an error.
	Refuse(err error)
}

// InstanceSet is a set of instances, any of which can execute a request: those of a scheduler, or
// some of them.
type InstanceSet interface {
	// Look returns the batches being executed, the number of instances that came and went so far,
	// and whether an instance is idle or being restarted.
	Look() (positions []Position, changes uint64, free bool)
}

// Batch is a batch that an instance has or had.
type Batch interface {
	Model() string // for error texts
	Position() Position
	// Members returns the tasks of the batch; the Graph uses only their requests.
	Members() []*backend.Task
}

// Position says where a request or a batch is. Its counts show whether it has moved.
type Position struct {
	Batch      Batch // current or last batch of a request; nil before the first
	State      State
	Executions uint32 // begun so far
	Responses  uint32 // sent so far, of BLS requests
}

// State is the state of a request or a batch.
type State uint8

// The states. A batch is Executing or Elsewhere.
const (
	Elsewhere State = 0 // on its way, or returned by its instance
	Queued    State = 1
	Executing State = 2
	Ended     State = 3 // or about to be, as its client has disconnected
)
