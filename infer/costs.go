package infer

import "sync/atomic"

// Costs adds up what the executions for a request cost, in ns. Several may run
// at once.
type Costs struct {
	Input  atomic.Int64 // until the models had their inputs
	Infer  atomic.Int64 // until they had answered
	Output atomic.Int64 // until their responses had been handed up
}

// Add takes account of one execution.
func (c *Costs) Add(input, infer, output int64) {
	c.Input.Add(input)
	c.Infer.Add(infer)
	c.Output.Add(output)
}
