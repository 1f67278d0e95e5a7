// Package stacked passes each batch to the model as one request.
//
// For a model with the parameter BATCH_MODE "stacked", a batch of n requests becomes one request
// whose inputs are concatenated along the batch dimension. The outputs of its response are passed
// to the n clients as views of the same bytes:
//
//	task 0  X [2,4] ─┐                            ┌─ Y[0:2] ▶ task 0
//	task 1  X [1,4] ─┼▶ X [6,4] ▶ execute ▶ Y [6] ┼─ Y[2:3] ▶ task 1
//	task 2  X [3,4] ─┘                            └─ Y[3:6] ▶ task 2
//
// Plan holds the settings of the config; Events puts the stacking between a version's instances and
// its scheduler. docs/batching.md describes the view of the model.
//
// Ownership: the merged inputs belong to the group. It releases them when the model has sent its
// last response or has refused the batch. A batch of one uses the inputs of its task as they are.
// Each view of an output holds a reference to the output's memory.
//
// No lock is held while bytes are copied, an instance is called, or a response is sent.
package stacked
