package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// measureAll measures the floors and the round trips, and prints the tables.
func (s *settings) measureAll(span time.Duration) (err error) {
	if s.native {
		return s.measureNative(span, nil)
	}
	var table measure.Table
	table.Row("µs", "p50", "p99", "CPU", "p50 / ping-pong", "p50 / copy", "p50 / Python")

	ping, err := pingPong(span)
	if err != nil {
		return fmt.Errorf("ping-pong: %w", err)
	}
	floor := ping.Quantile(0.5)
	table.Row("ping-pong of two processes", floor, ping.Quantile(0.99), ping.CPUEach(), "", "", "")
	copies := make(map[int]time.Duration)
	for _, n := range s.sizes {
		if n <= inline {
			continue // the time is close to the resolution of the clock
		}
		times, err := copying(span, n)
		if err != nil {
			return err
		}
		copies[n] = max(times.Quantile(0.5), 1)
		table.Row("copy of "+measure.Size(n), times.Quantile(0.5), times.Quantile(0.99), times.CPUEach(), "", "", "")
	}

	identity, err := start(s.python, floats)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, identity.close()) }()
	for _, requests := range s.batches {
		for _, n := range s.sizes {
			times, err := identity.measureBatch(span, requests, n)
			name := fmt.Sprintf("round trip, %d × %s", requests, measure.Size(n))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p50 := times.Quantile(0.5)
			var copied any = ""
			if n > inline {
				copied = float64(p50) / float64(requests) / float64(copies[n])
			}
			table.Row(name, p50, times.Quantile(0.99), times.CPUEach(), float64(p50)/float64(floor), copied, "")
		}
	}
	if err := s.measureHops(span, floor, &table); err != nil {
		return err
	}
	if err := s.measureValues(span, floor, &table); err != nil {
		return err
	}
	fmt.Printf("%s\n\n", identity.about)
	if err := table.Write(os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	return s.measureNative(span, identity)
}
