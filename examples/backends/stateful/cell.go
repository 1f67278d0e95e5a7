package stateful

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// cell is a model: recurrent layers with one state each. The output of a layer is the input of the
// next.
type cell struct {
	layers []layer
}

// layer is a recurrent layer. Its next state, and also its output, is tanh(InputWeights · input +
// StateWeights · state + Bias).
type layer struct {
	InState      string      `json:"in_state"`
	OutState     string      `json:"out_state"`
	InputWeights [][]float32 `json:"input_weights"` // a row for each element of the state
	StateWeights [][]float32 `json:"state_weights"`
	Bias         []float32   `json:"bias"`
}

// loadCell reads a cell and checks that the sizes of its matrices match.
func loadCell(path string) (*cell, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load the cell: %w", err)
	}
	// The file has one layer or a list of layers.
	var file struct {
		layer
		Layers []layer `json:"layers"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("load the cell %s: %w", path, err)
	}
	if len(file.Layers) == 0 {
		file.Layers = []layer{file.layer}
	}
	c := &cell{file.Layers}
	for i := range c.layers {
		l := &c.layers[i]
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("load the cell %s: %w", path, err)
		}
		if i > 0 && l.inputs() != c.layers[i-1].states() {
			return nil, fmt.Errorf("load the cell %s: the layer of %s has %d inputs, want %d, as the layer before has outputs", path, l.InState, l.inputs(), c.layers[i-1].states())
		}
	}
	return c, nil
}

// check returns an error if the sizes of a layer do not match.
func (l *layer) check() error {
	n := len(l.Bias)
	if n == 0 || len(l.InputWeights) != n || len(l.StateWeights) != n {
		return fmt.Errorf("bias, input_weights and state_weights have %d, %d and %d rows, want as many each, and one at least", n, len(l.InputWeights), len(l.StateWeights))
	}
	for i := range n {
		if len(l.InputWeights[i]) != l.inputs() || l.inputs() == 0 || len(l.StateWeights[i]) != n {
			return fmt.Errorf("row %d of input_weights and state_weights has %d and %d numbers, want %d and %d",
				i, len(l.InputWeights[i]), len(l.StateWeights[i]), l.inputs(), n)
		}
	}
	return nil
}

// inputs returns the size of an input, states that of a state.
func (l *layer) inputs() int { return len(l.InputWeights[0]) }

func (l *layer) states() int { return len(l.Bias) }

func (c *cell) inputs() int { return c.layers[0].inputs() }

// outputs returns the size of an output, which is the last layer's state.
func (c *cell) outputs() int { return c.layers[len(c.layers)-1].states() }

// states returns the total size of the states of a sequence.
func (c *cell) states() (n int) {
	for i := range c.layers {
		n += c.layers[i].states()
	}
	return n
}

// step computes a batch. inputs, states and next have one row per sequence; a row of states has
// those of all layers, in order.
func (c *cell) step(inputs, states, next []float32) {
	in, n := c.inputs(), c.states()
	for row := range len(states) / n {
		x, before, after := inputs[row*in:(row+1)*in], states[row*n:(row+1)*n], next[row*n:(row+1)*n]
		for i := range c.layers {
			size := c.layers[i].states()
			c.layers[i].step(x, before[:size], after[:size])
			x, before, after = after[:size], before[size:], after[size:]
		}
	}
}

func (l *layer) step(x, state, next []float32) {
	for i := range next {
		next[i] = float32(math.Tanh(float64(l.Bias[i] + dot(l.InputWeights[i], x) + dot(l.StateWeights[i], state))))
	}
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
