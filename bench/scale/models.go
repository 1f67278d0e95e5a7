package main

import (
	"net/http"
	"os"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// measureModels starts servers with growing numbers of models, and requests lists of all models.
func (s *settings) measureModels(r *report) error {
	var with measure.Table
	with.Row("models", "server", "idle, CPU ms/s", "index KiB", "CPU ms", "ms", "metrics KiB", "CPU ms", "ms", "of used models KiB", "CPU ms", "ms",
		"load, CPU ms", "ms", "unload, CPU ms", "ms", "infer p50 µs", "p99 µs", "CPU µs")
	err := r.each("Models: start", []any{"models", "server", "start s", "CPU s", "processes", "threads", "descriptors", "server PSS MiB", "PSS MiB of each model", "of the rest", "end s", "CPU s"},
		s.models, func(v rival, models int) ([]any, error) {
			return s.withModels(v, models, 1, &with)
		})
	if err != nil {
		return err
	}
	return r.print("Models: while they are loaded", &with)
}

// measureInstances does the same with growing numbers of instances of one model.
func (s *settings) measureInstances(r *report) error {
	return r.each("Instances of one model", []any{"instances", "server", "start s", "CPU s", "processes", "threads", "descriptors", "server PSS MiB", "PSS MiB of each instance", "of the rest", "end s", "CPU s"},
		s.instances, func(v rival, instances int) ([]any, error) {
			return s.withModels(v, 1, instances, nil)
		})
}

// withModels starts a server with models and returns the row about its start. It adds a row about
// the cost of requests to the table.
func (s *settings) withModels(v rival, models, instances int, with *measure.Table) (row []any, err error) {
	root, err := makeRepository(models, instances)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	p, err := v.start(root, nil)
	if err != nil {
		return nil, err
	}
	u, err := p.look()
	if err == nil && with != nil {
		var cells []any
		cells, err = s.asking(p, models)
		with.Row(append([]any{models, v.name}, cells...)...)
	}
	before := u.cpu
	if last, err := p.look(); err == nil {
		before = last.cpu
	}
	took, cpu, ended := p.stop()
	if err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	return []any{seconds(p.took), seconds(u.cpu), u.processes, u.threads, u.descriptors, mib(u.server), mib(u.models / int64(max(u.stubs, 1))), mib(u.others), seconds(took), seconds(cpu - before)}, nil
}

// asking measures the cost of requests.
func (s *settings) asking(p *server, models int) (row []any, err error) {
	idle, err := s.watchIdle(p)
	if err != nil {
		return nil, err
	}
	row = append(row, perSecond(idle, s.idle))
	page := func() ([]byte, error) { return p.want(http.MethodGet, p.metrics, "/metrics", "") }
	for i, ask := range []func() ([]byte, error){
		func() ([]byte, error) { return p.want(http.MethodPost, p.http, "/v2/repository/index", "") }, page, page,
	} {
		if i == 2 {
			if err := atOnce(models, 2, func(i int) error { return p.infer(modelName(i)) }); err != nil {
				return nil, err
			}
		}
		c, err := p.repeat(s.span, ask)
		if err != nil {
			return nil, err
		}
		row = append(row, kib(c.size), milliseconds(c.cpu), milliseconds(c.wall))
	}
	last := modelName(models - 1)
	var loads, unloads measure.Times
	for range 5 {
		for _, change := range []struct {
			verb  string
			times *measure.Times
		}{{"unload", &unloads}, {"load", &loads}} {
			before, err := p.look()
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if _, err := p.want(http.MethodPost, p.http, "/v2/repository/models/"+last+"/"+change.verb, ""); err != nil {
				return nil, err
			}
			took := time.Since(began)
			after, err := p.look()
			if err != nil {
				return nil, err
			}
			change.times.Each = append(change.times.Each, took)
			change.times.CPU += max(0, after.cpu-before.cpu)
		}
	}
	for _, times := range []*measure.Times{&loads, &unloads} {
		row = append(row, milliseconds(times.CPUEach()), milliseconds(times.Quantile(0.5)))
	}
	pids, err := measure.Tree(p.PID())
	if err != nil {
		return nil, err
	}
	times, err := measure.WarmRounds(s.span, pids, func() error { return p.infer(modelName(models / 2)) })
	if err != nil {
		return nil, err
	}
	return append(row, microseconds(times.Quantile(0.5)), microseconds(times.Quantile(0.99)), microseconds(times.CPUEach())), nil
}

// watchIdle returns the processor time of a server without requests.
func (s *settings) watchIdle(p *server) (time.Duration, error) {
	pids, err := measure.Tree(p.PID())
	if err != nil {
		return 0, err
	}
	time.Sleep(s.idle / 2) // work left over from the start should not count
	before, err := measure.CPU(pids)
	if err != nil {
		return 0, err
	}
	time.Sleep(s.idle)
	after, err := measure.CPU(pids)
	return after - before, err
}
