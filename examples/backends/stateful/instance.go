package stateful

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/sdk"
)

type instance struct {
	model  *model
	states *states
	// The rows of a batch. All batches reuse these slices.
	inputs, before, after []float32
}

// row is one request of a batch.
type row struct {
	response   *sdk.Response
	shape      []int64 // of its output
	sequence   key
	state      *state
	start, end bool
	at         int // its place in the batch, -1: it is not computed
	err        error
}

func (i *instance) Execute(_ context.Context, requests []*sdk.Request) error {
	rows := make([]row, len(requests))
	for at, request := range requests {
		var err error
		if rows[at].response, err = request.NewResponse(); err != nil {
			return err // none of the requests has been taken
		}
	}
	i.compute(requests, rows)
	for at, request := range requests {
		r := &rows[at]
		_ = r.response.Send(sdk.SendFinal, r.err)
		_ = request.Release(sdk.ReleaseAll)
	}
	return nil
}

// Close frees all states.
func (i *instance) Close() { i.states.close() }

// compute fills in the responses. The states are locked meanwhile, so that the timer does not free
// any in use.
func (i *instance) compute(requests []*sdk.Request, rows []row) {
	i.states.mu.Lock()
	defer i.states.mu.Unlock()
	i.gather(requests, rows)
	i.model.cell.step(i.inputs, i.before, i.after)
	i.scatter(rows)
	for at := range rows {
		if rows[at].end {
			i.states.giveUpLocked(rows[at].sequence)
		}
	}
}

// gather collects the rows for the computation.
func (i *instance) gather(requests []*sdk.Request, rows []row) {
	i.inputs, i.before = i.inputs[:0], i.before[:0]
	now, computed := time.Now(), 0
	for at, request := range requests {
		r := &rows[at]
		r.at = -1
		var input *sdk.Input
		if input, r.err = i.read(request, r); r.err != nil {
			continue
		}
		if r.end && !i.model.inferEnd {
			continue
		}
		if r.state, r.err = i.states.takeLocked(r.sequence, r.start, now); r.err != nil {
			continue
		}
		for data := input.Data(); len(data) >= 4; data = data[4:] {
			i.inputs = append(i.inputs, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		i.before = append(i.before, r.state.values...)
		r.shape = []int64{1, int64(i.model.cell.outputs())}
		r.at = computed
		computed++
	}
	count := computed
	if i.model.pad {
		count = i.model.batch
	}
	cell := i.model.cell
	i.inputs = padded(i.inputs, count*cell.inputs())
	i.before = padded(i.before, count*cell.states())
	i.after = padded(i.after[:0], count*cell.states())
}

// padded returns values padded with zeros to length n.
func padded(values []float32, n int) []float32 {
	have := len(values)
	values = slices.Grow(values, n-have)[:n]
	clear(values[have:])
	return values
}

// read reads the control inputs and the data of a request.
func (i *instance) read(request *sdk.Request, r *row) (*sdk.Input, error) {
	var err error
	if r.start, err = i.model.start.read(request); err != nil {
		return nil, err
	}
	if r.end, err = i.model.end.read(request); err != nil {
		return nil, err
	}
	if r.sequence.number, err = request.CorrelationNumber(); err != nil {
		if r.sequence.text, err = request.CorrelationText(); err != nil {
			return nil, err
		}
	}
	return request.Input(i.model.input)
}

// read reports whether a control is set, as the config defines it.
func (c control) read(request *sdk.Request) (bool, error) {
	input, err := request.Input(c.name)
	if err != nil {
		return false, err
	}
	return c.is(input.Data())
}

func (c control) is(value []byte) (bool, error) {
	switch {
	case bytes.Equal(value, c.wanted):
		return true, nil
	case bytes.Equal(value, c.unset):
		return false, nil
	}
	return false, sdk.Errorf(sdk.InvalidArg, "the control %s has the bytes %x, want %x or %x", c.name, value, c.unset, c.wanted)
}

// scatter gives each request its row of the outputs, and stores the next state of each sequence.
func (i *instance) scatter(rows []row) {
	n := i.model.cell.states()
	for at := range rows {
		r := &rows[at]
		if r.at < 0 {
			continue
		}
		next := i.after[r.at*n : (r.at+1)*n]
		var output []byte
		if output, r.err = r.response.Output(i.model.output, sdk.FP32, r.shape); r.err != nil {
			continue
		}
		for j, value := range next[n-i.model.cell.outputs():] {
			binary.LittleEndian.PutUint32(output[4*j:], math.Float32bits(value))
		}
		copy(r.state.values, next)
	}
}
