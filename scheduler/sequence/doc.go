// Package sequence is the scheduler of models with sequence_batching, Triton's sequence
// batcher.
//
// A Batcher keeps the requests of one correlation id together. They go to one slot of
// one instance, one after the other. Where no slot is free, a sequence waits in the
// backlog.
//
//	request ──▶ ids ──▶ sequence ──▶ slot of an instance ──▶ batch (Direct) or batcher (Oldest)
//	                        │             ▲
//	                        └── backlog ──┘ when a slot's sequence has ended
//
// A sequence lives from the request with START until the one with END has been taken
// from its slot, or until it was idle for too long and nothing of it waits any more;
// its slot is free again then. slots.go decides which sequence has a slot, idle.go for
// how long, direct.go and oldest.go which requests are executed together, rounds.go
// which come again, lanes.go what becomes of the sequences of an instance that comes,
// is lost or retired. What a model gets beside the inputs of its client is in control.go
// (control tensors), state.go (implicit states) and padding.go (empty slots).
//
// An episode is one request of a sequence (episode.go), a lane an instance of the
// roster with its slots (slots.go). A retiring lane serves the sequences of its slots to
// their ends.
//
// Changes are made with this package's Batcher.mu held and collected in a followUp, which runs when
// nothing is locked: it hands batches to instances, submits requests to the
// scheduler.Batcher of a lane (Oldest), and sends errors.
//
// Available and Lost act in two steps and give Batcher.mu up between them, because they
// call the scheduler.Batcher of the lane. The lane is not available between the steps:
// its sequences keep their slots, their requests wait, and no other sequence gets a slot.
//
// Locks: the search lock of a waitgraph.Graph before Batcher.mu before Graph.mu.
// Batcher.mu guards the roster and what each lane has; Member.Instance alone is read
// without it, after unlocking, to call the instance. The scheduler.Batcher of a lane is
// not called with Batcher.mu held, and calls Released and Again with nothing locked.
// Observer.Pending and budget.Account.Give may be called with Batcher.mu held.
//
// Memory: the inputs of a request are the client's until its last response. States are
// copied out of responses, into bytes of the sequence that are charged to Config.Memory
// as long as its id is known. The padding of a batch lies in a block of Config.Allocate,
// which all empty slots share and which is given back when the instance is idle.
package sequence
