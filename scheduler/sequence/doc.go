// Package sequence is the scheduler of models with sequence_batching, Triton's sequence batcher.
//
// A Batcher keeps the requests of one correlation id together. They execute one after another in
// one slot of one instance. Without a free slot, a sequence waits in the backlog.
//
//	request ──▶ ids ──▶ sequence ──▶ slot of an instance ──▶ batch (Direct) or batcher (Oldest)
//	                        │             ▲
//	                        └── backlog ──┘ when a slot's sequence has ended
//
// A sequence lives from the request with START until the one with END is taken from its slot, or
// until it has been idle for too long and has no queued request. An episode is one request of a
// sequence; a lane is an instance with its slots. A retiring lane serves the sequences of its slots
// to their ends.
//
//	slots.go     which sequence gets a slot
//	idle.go      how long a sequence lives
//	direct.go    which requests are executed together; oldest.go for the strategy Oldest
//	rounds.go    rescheduled requests
//	lanes.go     instances that arrive, are lost or retire
//	control.go   control tensors; state.go implicit states; padding.go empty slots
//	waits.go     positions for the wait graph
//
// Changes are made with this package's Batcher.mu held and collected in a followUp, which runs
// after unlocking: it gives batches to instances, submits requests to the scheduler.Batcher of a
// lane (Oldest), and sends errors.
//
// Available and Lost act in two steps and unlock Batcher.mu between them, because they call the
// scheduler.Batcher of the lane. Between the steps the lane is not available: its sequences keep
// their slots, their requests wait, and no other sequence gets a slot.
//
// Locks: the search lock of a waitgraph.Graph, then Batcher.mu, then Graph.mu. Batcher.mu guards
// the roster and each lane except Member.Instance. The scheduler.Batcher of a lane is not called
// with Batcher.mu held, and calls Released and Again with nothing locked. Observer.Pending, and
// Take and Give of a budget.Account, may be called with Batcher.mu held.
//
// Memory: the inputs of a request are the client's until its last response. States are copied from
// responses into bytes of the sequence. A sequence is charged to Config.Memory while its id is
// known or it has requests, and each copy of a state while the sequence or one of its requests
// needs it. The padding of a batch lies in a block of Config.Allocate that all empty slots share;
// it is released when the instance is idle.
package sequence
