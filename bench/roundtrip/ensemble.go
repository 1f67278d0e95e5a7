package main

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/infer"
)

// measureSteps measures three ways to run the identity model three times in a row, each on the
// output of the previous run: a client makes three requests, a model makes three BLS calls, an
// ensemble has three steps.
func (h *hops) measureSteps(span time.Duration, n int, ping time.Duration, table *measure.Table) error {
	client, err := h.measureClient(span, n)
	if err != nil {
		return err
	}
	row := func(name string, times measure.Times) {
		p50 := times.Quantile(0.5)
		table.Row(name+", "+measure.Size(n), p50, times.Quantile(0.99), times.CPUEach(), float64(p50)/float64(ping), "", "")
	}
	row("three calls of a client", client)
	for _, way := range []struct{ model, name string }{{"three_calls", "three calls of a model"}, {"three_steps", "an ensemble of three steps"}} {
		times, err := h.measure(span, way.model, n, 0)
		if err != nil {
			return err
		}
		row(way.name, times)
	}
	return nil
}

// measureClient makes a client pass outputs on as inputs, in memory that it shares with the models
// like a front end.
func (h *hops) measureClient(span time.Duration, n int) (measure.Times, error) {
	return measure.WarmRounds(span, h.pids, func() error {
		input := infer.Tensor{Name: "INPUT0", DataType: infer.FP32, Shape: []int64{int64(n / 4)}}
		if n <= inline {
			input.Data = make([]byte, n)
		} else {
			block, err := h.pool.Alloc(n)
			if err != nil {
				return err
			}
			input.Data, input.Memory = block.Bytes(), block
		}
		for range 3 {
			answer, err := h.ask("identity", input)
			input.Release()
			if err != nil {
				return err
			}
			input = answer
			input.Name = "INPUT0"
		}
		input.Release()
		return nil
	})
}

// ask returns the only output of a model. The caller owns it.
func (h *hops) ask(model string, input infer.Tensor) (output infer.Tensor, err error) {
	req := &infer.Request{Model: model, Version: infer.LatestVersion, Inputs: []infer.Tensor{input}}
	var failure error
	err = h.registry.Infer(context.Background(), req, func(r *infer.Response) {
		if r.Err != nil {
			failure = r.Err
			return
		}
		output = r.Outputs[0]
		r.Outputs = nil
		r.Release()
	})
	if err != nil {
		return output, err
	}
	return output, failure
}
