package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/infer"
)

// clients is the number of concurrent clients for each batch.
const clients = 64

// batchTime is how long the models sleep per batch, whatever its size.
const batchTime = 2 * time.Millisecond

// measureBatches measures dynamic batching: many concurrent clients of a model whose execution
// takes the same time for one request and for many. The ideal is one full batch per execution time.
func (h *hops) measureBatches(span time.Duration, table *measure.Table) error {
	for _, size := range []int{16, 64} {
		model := fmt.Sprintf("batches_%d", size)
		times, err := h.askAtOnce(span, model)
		if err != nil {
			return err
		}
		table.Row(fmt.Sprintf("%d clients, batches of %d that take 2 ms", clients, size),
			times.Quantile(0.5), times.Quantile(0.99), times.CPUEach(), "", "", "")
		ideal := float64(size) / batchTime.Seconds()
		table.Row("  requests a second, of the ideal", fmt.Sprintf("%.2f", times.Rate()/ideal), "", "", "", "", "")
	}
	return nil
}

func (h *hops) askAtOnce(span time.Duration, model string) (measure.Times, error) {
	var all measure.Times
	var mu sync.Mutex
	var failures []error
	var asking sync.WaitGroup
	before, err := measure.CPU(h.pids)
	if err != nil {
		return all, err
	}
	begin := time.Now()
	for range clients {
		asking.Go(func() {
			var mine []time.Duration
			var failure error
			for last := begin; failure == nil && last.Sub(begin) < span; {
				failure = h.askBatching(model)
				now := time.Now()
				mine = append(mine, now.Sub(last))
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			all.Each = append(all.Each, mine...)
			failures = append(failures, failure)
		})
	}
	asking.Wait()
	all.Wall = time.Since(begin)
	after, err := measure.CPU(h.pids)
	all.CPU = after - before
	return all, errors.Join(append(failures, err)...)
}

func (h *hops) askBatching(model string) error {
	r := &infer.Request{Model: model, Version: infer.LatestVersion, Inputs: []infer.Tensor{
		{Name: "INPUT0", DataType: infer.FP32, Shape: []int64{1, 4}, Data: make([]byte, 16)},
	}}
	var failure error
	err := h.registry.Infer(context.Background(), r, func(answer *infer.Response) {
		if answer.Err != nil {
			failure = answer.Err
		}
		answer.Release()
	})
	if err != nil {
		return err
	}
	return failure
}
