package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nereid-serving/nereid/bench/measure"
)

func main() {
	chart := flag.String("values", "deploy/helm/nereid/values.yaml", "values of the chart")
	instances := flag.Int("instances", 4, "instances of each pod")
	seconds := flag.Float64("seconds", 0.2, "seconds of an execution")
	random := flag.Bool("random", false, "executions take exponentially distributed times")
	start := flag.Float64("start", 60, "seconds until a pod is ready")
	seed := flag.Uint64("seed", 1, "seed")
	busy := flag.String("busy", "chart", "target of the share of time that instances are busy; \"\": none")
	pending := flag.String("pending", "chart", "target of the requests that wait, for each pod; \"\": none")
	down := flag.Float64("down", -1, "stabilization window for going down; -1: the chart's")
	most := flag.Int("max", 0, "most pods; 0: the chart's")
	keda := flag.Bool("keda", false, "by KEDA")
	flag.Parse()
	v, err := readChart(*chart)
	if err == nil {
		if *busy != "chart" {
			v.Autoscaling.HPA.BusyShare, v.Autoscaling.KEDA.BusyShare = *busy, *busy
		}
		if *pending != "chart" {
			v.Autoscaling.HPA.AverageValue, v.Autoscaling.KEDA.Threshold = *pending, *pending
		}
		if *down >= 0 {
			v.Autoscaling.HPA.Behavior.ScaleDown.StabilizationWindowSeconds = down
		}
		if *most > 0 {
			v.Autoscaling.HPA.MaxReplicas, v.Autoscaling.KEDA.MaxReplicas = *most, *most
		}
		var p Params
		if p, err = v.params(*keda, Model{*instances, *seconds, *random}, *start); err == nil {
			p.Seed = *seed
			err = show(os.Stdout, p, loads(p.Model.capacity()))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "autoscale:", err)
		os.Exit(1)
	}
}

// show runs scenarios and prints a table.
func show(out io.Writer, p Params, scenarios []scenario) error {
	var table measure.Table
	table.Row("load", "requests", "lost", "p50 ms", "p99 ms", "longest s", "pods", "turns", "pod hours", "needed")
	for _, l := range scenarios {
		p := p
		p.Seconds, p.Ignore = l.seconds, l.ignore
		r := simulate(p, l.load)
		needed := 0.0
		for t := l.ignore; t < l.seconds; t++ {
			needed += l.rate(t) / p.Model.capacity() / 3600
		}
		table.Row(l.what, r.Requests, r.Lost, r.P50*1000, r.P99*1000, r.Longest, fmt.Sprintf("%d–%d", r.Least, r.Most), r.Turns(), r.PodSeconds/3600, needed)
	}
	return table.WriteMarkdown(out)
}

// scenario is a load with its time.
type scenario struct {
	load
	what            string
	seconds, ignore float64
}

// loads are those of the report, for pods of a capacity.
func loads(pod float64) []scenario {
	return []scenario{
		{steady(0.5 * pod), "steady, half a pod", 7200, 1200},
		{steady(0.9 * pod), "steady, 0.9 pods", 7200, 1200},
		{steady(1.5 * pod), "steady, 1.5 pods", 7200, 1200},
		{steady(2.5 * pod), "steady, 2.5 pods", 7200, 1200},
		{step(0.5*pod, 2.5*pod, 1200), "a step from 0.5 to 2.5 pods", 4800, 600},
		{burst(0.5*pod, 3*pod, 1200, 1320), "two minutes of 3 pods", 4800, 600},
		{day(0.3*pod, 3*pod, 14400), "a day in four hours, 0.3 to 3 pods", 14400, 0},
		{crowd(0.3*pod, 6*pod, 1200, 300), "a crowd of 6 pods that fades in 5 minutes", 4800, 600},
	}
}
