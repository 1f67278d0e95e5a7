// Package stacked gives a model its batches as one request.
//
// A model whose config has the parameter BATCH_MODE with the value "stacked"
// gets, for a batch of n requests, one request whose inputs are those of the n,
// one behind the other along the batch dimension. It answers with one response,
// whose outputs are handed to the n clients as views of the same bytes:
//
//	task 0  X [2,4] ─┐                            ┌─ Y[0:2] ▶ task 0
//	task 1  X [1,4] ─┼▶ X [6,4] ▶ execute ▶ Y [6] ┼─ Y[2:3] ▶ task 1
//	task 2  X [3,4] ─┘                            └─ Y[3:6] ▶ task 2
//
// Plan is what the config asks for, Events puts the stacking between a version's
// instances and its scheduler. docs/batching.md says what models see.
//
// Ownership: the merged inputs belong to the group, which releases them when the
// model has given its last response or has not looked at the batch; those of a
// batch of one are the task's own, used as they are. Each view of an output
// holds a reference of its own to the output's memory.
//
// Locks: none is held while bytes are copied, an instance is called, or a task
// is answered.
package stacked
