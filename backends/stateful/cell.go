package stateful

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// cell is a recurrent cell: its next state is tanh(InputWeights · input + StateWeights · state + Bias), and that is its
// output too.
type cell struct {
	InState      string      `json:"in_state"`
	OutState     string      `json:"out_state"`
	InputWeights [][]float32 `json:"input_weights"` // a row for each element of the state
	StateWeights [][]float32 `json:"state_weights"`
	Bias         []float32   `json:"bias"`
}

// loadCell reads a cell and checks that its matrices fit each other.
func loadCell(path string) (*cell, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load the cell: %w", err)
	}
	c := &cell{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("load the cell %s: %w", path, err)
	}
	n := len(c.Bias)
	if n == 0 || len(c.InputWeights) != n || len(c.StateWeights) != n {
		return nil, fmt.Errorf("load the cell %s: bias, input_weights and state_weights have %d, %d and %d rows, want as many each, and one at least",
			path, n, len(c.InputWeights), len(c.StateWeights))
	}
	for i := range n {
		if len(c.InputWeights[i]) != c.inputs() || c.inputs() == 0 || len(c.StateWeights[i]) != n {
			return nil, fmt.Errorf("load the cell %s: row %d of input_weights and state_weights has %d and %d numbers, want %d and %d",
				path, i, len(c.InputWeights[i]), len(c.StateWeights[i]), c.inputs(), n)
		}
	}
	return c, nil
}

// inputs is the size of an input, states that of a state.
func (c *cell) inputs() int { return len(c.InputWeights[0]) }

func (c *cell) states() int { return len(c.Bias) }

// step computes a batch: inputs and states have a row for each sequence, one behind the other, and so has next.
func (c *cell) step(inputs, states, next []float32) {
	in, n := c.inputs(), c.states()
	for row := range len(states) / n {
		x, h := inputs[row*in:(row+1)*in], states[row*n:(row+1)*n]
		for i := range n {
			next[row*n+i] = float32(math.Tanh(float64(c.Bias[i] + dot(c.InputWeights[i], x) + dot(c.StateWeights[i], h))))
		}
	}
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
