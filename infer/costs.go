package infer

import "sync/atomic"

// Costs adds up the costs of all executions for a request, in ns. Executions may run concurrently.
type Costs struct {
	Input  atomic.Int64 // preparing the inputs of the models
	Infer  atomic.Int64 // running the models
	Output atomic.Int64 // sending their responses
}

// Add adds one execution.
func (c *Costs) Add(input, infer, output int64) {
	c.Input.Add(input)
	c.Infer.Add(infer)
	c.Output.Add(output)
}
