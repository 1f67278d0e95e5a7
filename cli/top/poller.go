package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/status"
)

const (
	// rateSpan is the span over which rates are averaged.
	rateSpan = 5 * time.Second
	// maxLines limits the number of kept log lines, and of kept errors.
	maxLines = 1000
	// ready is the state of a version that serves. It may have a reason: why a reload failed.
	ready = "READY"
	// unavailable is the state of a version that is not loaded.
	unavailable = "UNAVAILABLE"
)

// poller polls a server. One goroutine at a time may use it.
type poller struct {
	options *options
	server  *client.Endpoint
	metrics *client.Endpoint // at the address of where
	where   whereabouts
	panics  zerolog.Logger // receives panics; without a writer they go to standard error

	last    *View
	started time.Time // of the server, according to its status
	lines   uint64    // sequence number of the last kept line of the log
	log     []status.Line
	errors  []status.Line
	seen    map[key][]counts
	first   map[key]*measuredVersion // from the first poll, for percentiles without a status
	cpu     map[int]processTime      // by process
}

// counts are the counters of a version at one time.
type counts struct {
	at                                        time.Time
	succeeded, failed, inferences, executions float64
	seconds                                   float64 // of all successful requests
}

// processTime is the CPU time of a process at one time.
type processTime struct {
	at      time.Time
	seconds float64
}

func newPoller(o *options) *poller {
	p := &poller{
		options: o, server: o.endpoint(o.server), metrics: o.endpoint(o.server),
		seen: make(map[key][]counts), first: make(map[key]*measuredVersion), cpu: make(map[int]processTime),
	}
	p.place(whereabouts{url: o.metrics, settled: o.metrics != nil})
	return p
}

func (o *options) endpoint(at *client.Address) *client.Endpoint {
	e := client.NewEndpoint(at, askLimit)
	e.Header = o.header
	return e
}

func (p *poller) close() {
	p.server.Close()
	p.metrics.Close()
}

// found holds the responses of the endpoints, or their errors.
type found struct {
	meta struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	index []struct {
		Name, Version, State, Reason string
	}
	statistics struct {
		Models []struct {
			Name       string `json:"name"`
			Version    string `json:"version"`
			Inferences uint64 `json:"inference_count"`
			Executions uint64 `json:"execution_count"`
			Stats      struct {
				Success, Fail struct{ Count, NS uint64 }
			} `json:"inference_stats"`
		} `json:"model_stats"`
	}
	metrics *measured
	status  *status.Snapshot

	metaErr, indexErr, statisticsErr, metricsErr, statusErr error
}

// errNoStatus is the error of an endpoint that returns an empty response for unknown paths.
var errNoStatus = errors.New("disabled (--allow-status=false), or not supported by the server")

// poll polls the server once.
func (p *poller) poll(ctx context.Context) *View {
	f := p.find(ctx)
	now := time.Now()
	v := &View{At: now, URL: p.options.server.URL.String(), Notes: []string{}, Models: []Row{}, Errors: []status.Line{}, Log: []status.Line{}}
	if lost := f.lost(); lost != nil {
		if p.last != nil {
			since := p.last.since
			*v = *p.last
			v.since = since
		}
		if v.since.IsZero() {
			v.since = now
		}
		v.Lost = lost.Error()
		p.last = v
		return v
	}
	v.Notes = append(v.Notes, f.notes(p.options, p.where)...)
	p.noticeRestart(f.status)
	v.Server.Name, v.Server.Version = f.meta.Name, f.meta.Version
	if f.status != nil {
		p.addStatus(v, f.status)
	}
	v.addIndex(f)
	v.addMetrics(f.metrics, p)
	p.addRates(v, f)
	v.Errors, v.Log = p.errors, p.log
	slices.SortStableFunc(v.Models, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Model, b.Model), cmp.Compare(versionNumber(a.Version), versionNumber(b.Version)))
	})
	p.last = v
	return v
}

func versionNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // non-numeric versions sort first
	return n
}

// find queries all endpoints at once.
func (p *poller) find(ctx context.Context) *found {
	p.locate(ctx)
	f := &found{}
	var all sync.WaitGroup
	read := func(err *error, into any, method, path string) {
		text, failed := p.server.Ask(ctx, method, path, nil)
		if failed == nil {
			failed = decode(text, into, maxElements)
		}
		*err = failed
	}
	start := func(outcome *error, look func()) {
		all.Go(panics.Guard(p.panics, panics.Request, look, func(err error) { *outcome = err }))
	}
	start(&f.metaErr, func() { read(&f.metaErr, &f.meta, http.MethodGet, "/v2") })
	start(&f.indexErr, func() { read(&f.indexErr, &f.index, http.MethodPost, "/v2/repository/index") })
	start(&f.statisticsErr, func() { read(&f.statisticsErr, &f.statistics, http.MethodGet, "/v2/models/stats") })
	start(&f.metricsErr, func() {
		f.metricsErr = p.askThere(ctx, "/metrics", func(page io.Reader) (err error) {
			f.metrics, err = readMetrics(page)
			return err
		})
	})
	start(&f.statusErr, func() {
		f.statusErr = p.askThere(ctx, fmt.Sprintf("/status?lines=%d&after=%d", maxLines, p.lines), func(reply io.Reader) error {
			text, err := client.ReadAll(reply)
			if err == nil && len(text) == 0 {
				err = errNoStatus
			}
			if err != nil {
				return err
			}
			s := &status.Snapshot{}
			if err = decode(text, s, maxStatusElements); err == nil {
				f.status = s
			}
			return err
		})
	})
	all.Wait()
	return f
}

// lost returns the error if no endpoint that reports models responds, else nil. Metrics alone do
// not count: their endpoint ends last, and the previous View says more.
func (f *found) lost() error {
	for _, err := range []error{f.metaErr, f.indexErr, f.statisticsErr, f.statusErr} {
		if err == nil || client.IsRefusal(err) || errors.Is(err, errNoStatus) {
			return nil
		}
	}
	return f.metaErr
}

// notes describe missing data.
func (f *found) notes(o *options, at whereabouts) (list []string) {
	for _, of := range []struct {
		err           error
		what, missing string
	}{
		{f.indexErr, "index of models at " + o.server.URL.String(), "models that are not loaded are missing"},
		{f.statisticsErr, "statistics at " + o.server.URL.String(), "rates come only from the status"},
		{f.metricsErr, "metrics" + at.named("/metrics"), "queues, memory and GPUs are missing unless the status has them"},
		{f.statusErr, "status" + at.named("/status"), "instance states, errors and log are missing"},
	} {
		if of.err != nil {
			list = append(list, fmt.Sprintf("no %s: %v; %s", of.what, of.err, of.missing))
		}
	}
	if text := at.note(f.metricsErr == nil || f.statusErr == nil); text != "" {
		list = append(list, text)
	}
	return list
}

// noticeRestart discards the state of a previous server process.
func (p *poller) noticeRestart(s *status.Snapshot) {
	if s == nil {
		return
	}
	if !p.started.IsZero() && !s.Server.Started.Equal(p.started) {
		clear(p.seen)
		clear(p.first)
		clear(p.cpu)
		p.log, p.errors = nil, nil
		s.Log, s.Errors, s.Last = nil, nil, 0 // the lines after the last one of the old process: the next poll reads all of them
	}
	p.started = s.Server.Started
}

// addStatus adds the status, the main source of a View.
func (p *poller) addStatus(v *View, s *status.Snapshot) {
	v.hasStatus = true
	at := s.At
	one := s.Server
	v.Server.Name, v.Server.Version = cmp.Or(v.Server.Name, one.Name), cmp.Or(v.Server.Version, one.Version)
	v.Server.PID, v.Server.Control, v.Server.Uptime = one.PID, one.Control, number(one.Uptime)
	v.Server.Resident, v.Server.MemoryUsed, v.Server.MemoryLimit = number(one.Resident), number(one.MemoryUsed), number(one.MemoryLimit)
	present := make(map[int]processTime)
	v.Server.CPU = p.cores(present, one.PID, at, one.CPU)
	for _, m := range s.Versions {
		r := Row{
			Model: m.Model, Namespace: m.Namespace, State: m.State, Reason: m.Reason, Backend: cmp.Or(m.Backend, m.Platform),
			Queue: number(float64(m.Queue)), InFlight: number(float64(m.InFlight)), Groups: m.Groups,
		}
		if m.Version > 0 {
			r.Version = strconv.FormatInt(m.Version, 10)
		}
		if m.Load > 0 {
			r.Load = number(m.Load)
		}
		if m.State == unavailable { // it counts nothing
			r.Queue, r.InFlight = nil, nil
		}
		takes, resident, losses := 0, 0.0, 0
		counted := make(map[int]bool) // bound: the instances; several may share a process
		for _, in := range m.Instances {
			if in.State == "ready" || in.State == "busy" {
				takes++
			}
			if !counted[in.PID] {
				resident += float64(in.Resident)
			}
			counted[in.PID] = in.PID > 0
			losses += in.Losses
			r.Instances = append(r.Instances, Instance{in, p.cores(present, in.PID, at, in.CPU)})
		}
		r.Ready, r.Total, r.Losses = number(takes), number(len(m.Instances)), number(losses)
		if resident > 0 {
			r.Resident = number(resident)
		}
		for _, w := range m.Recent {
			r.Percentiles, r.Queueing = append(r.Percentiles, w.Request), append(r.Queueing, w.Queue)
		}
		if len(r.Percentiles) > 0 && r.Percentiles[0] != nil {
			r.P99 = number(r.Percentiles[0].P99)
		}
		if m.State != unavailable {
			r.fromPeriod(&m)
		}
		v.Models = append(v.Models, r)
	}
	p.cpu = present
	p.lines = s.Last
	p.log = lastOf(append(slices.Clone(p.log), s.Log...))
	p.errors = lastOf(append(slices.Clone(p.errors), s.Errors...))
}

// fromPeriod uses the server's rates of the last minute until there are rates from polling.
func (r *Row) fromPeriod(m *status.Version) {
	c := m.Counters
	r.Succeeded, r.Failed = number(float64(c.Succeeded)), number(float64(c.Failures()))
	if len(m.Recent) == 0 || m.Recent[0].Covered <= 0 {
		return
	}
	w := &m.Recent[0]
	r.Rate, r.Errors = number(float64(w.Succeeded)/w.Covered), number(float64(w.Failed)/w.Covered)
	if w.Executions > 0 {
		r.Batch = number(float64(w.Inferences) / float64(w.Executions))
	}
	if m.Latency != nil && c.Succeeded > 0 {
		r.Mean = number(m.Latency.Request.Sum / float64(c.Succeeded))
	}
}

// cores returns how many cores a process has used since the last poll, or nil if unknown.
func (p *poller) cores(present map[int]processTime, pid int, at time.Time, seconds float64) *float64 {
	if pid == 0 {
		return nil
	}
	before, known := p.cpu[pid]
	present[pid] = processTime{at, seconds}
	if !known || seconds < before.seconds {
		return nil
	}
	if !at.After(before.at) { // the same snapshot twice
		present[pid] = before
		return nil
	}
	return number((seconds - before.seconds) / at.Sub(before.at).Seconds())
}

func lastOf(lines []status.Line) []status.Line { return lines[max(0, len(lines)-maxLines):] }

// addIndex adds states and reasons of the index, and models that only the index lists.
func (v *View) addIndex(f *found) {
	known := make(map[string][]int)
	for i := range v.Models {
		known[v.Models[i].Model] = append(known[v.Models[i].Model], i)
	}
	for _, entry := range f.index {
		at := -1
		for _, i := range known[entry.Name] {
			if r := &v.Models[i]; r.Version == entry.Version || entry.Version == "" {
				at = i
				break
			}
		}
		if at < 0 {
			known[entry.Name] = append(known[entry.Name], len(v.Models))
			v.Models = append(v.Models, Row{Model: entry.Name, Version: entry.Version, State: entry.State, Reason: entry.Reason})
			continue
		}
		r := &v.Models[at]
		r.State, r.Reason = cmp.Or(r.State, entry.State), cmp.Or(r.Reason, entry.Reason)
	}
	if f.indexErr == nil {
		return
	}
	for _, m := range f.statistics.Models { // at least those that serve
		if !slices.ContainsFunc(v.Models, func(r Row) bool { return r.Model == m.Name && r.Version == m.Version }) {
			v.Models = append(v.Models, Row{Model: m.Name, Version: m.Version, State: "READY"})
		}
	}
}

// addMetrics adds machine metrics, and all others if the server has no status.
func (v *View) addMetrics(m *measured, p *poller) {
	if m == nil {
		return
	}
	v.Server.MachineCPU, v.Server.GPUs = m.cpu, m.gpus
	if v.hasStatus {
		return
	}
	v.timed = m.histograms
	for i := range v.Models {
		r := &v.Models[i]
		one := m.versions[r.key()]
		if one == nil {
			continue
		}
		r.Queue = one.pending
		if m.nereid {
			r.Losses = number(m.losses[r.Model])
			r.Total = number(len(one.instances))
		}
		if one.resident > 0 {
			r.Resident = number(one.resident)
		}
		for _, name := range one.instances {
			r.Instances = append(r.Instances, Instance{Instance: status.Instance{Name: name}})
		}
		first := p.first[r.key()]
		if first == nil || fell(first.request, one.request) {
			p.first[r.key()] = one
			continue
		}
		r.Percentiles = []*status.Percentiles{between(first.request, one.request, one.requestBounds)}
		r.Queueing = []*status.Percentiles{between(first.queue, one.queue, one.queueBounds)}
		if r.Percentiles[0] != nil {
			r.P99 = number(r.Percentiles[0].P99)
		}
	}
}

// fell reports whether counters were reset.
func fell(before, now []uint64) bool {
	for i := range before {
		if i >= len(now) || now[i] < before[i] {
			return true
		}
	}
	return false
}

// between returns the percentiles of the requests between two polls. A version has no histogram
// before its first request.
func between(before, now []uint64, bounds []float64) *status.Percentiles {
	if len(before) == 0 {
		before = make([]uint64, len(now))
	}
	if fell(before, now) || len(before) != len(now) {
		return nil
	}
	diff := slices.Clone(now)
	for i := range diff {
		diff[i] -= before[i]
	}
	return status.PercentilesOf(diff, bounds)
}

// addRates computes rates from the counters of the statistics or, without them, of the status.
func (p *poller) addRates(v *View, f *found) {
	now := make(map[key]counts)
	if f.status != nil {
		for _, m := range f.status.Versions {
			if m.State == unavailable {
				continue
			}
			c := counts{
				at: f.status.At, succeeded: float64(m.Counters.Succeeded), failed: float64(m.Counters.Failures()),
				inferences: float64(m.Counters.Inferences), executions: float64(m.Counters.Executions),
			}
			if m.Latency != nil {
				c.seconds = m.Latency.Request.Sum
			}
			now[key{m.Namespace, m.Model, strconv.FormatInt(m.Version, 10)}] = c
		}
	} else {
		for _, m := range f.statistics.Models {
			now[key{"", m.Name, m.Version}] = counts{
				at: v.At, succeeded: float64(m.Stats.Success.Count), failed: float64(m.Stats.Fail.Count),
				inferences: float64(m.Inferences), executions: float64(m.Executions), seconds: float64(m.Stats.Success.NS) / 1e9,
			}
		}
	}
	for i := range v.Models {
		r := &v.Models[i]
		c, known := now[r.key()]
		if !known {
			continue
		}
		r.Succeeded, r.Failed = number(c.succeeded), number(c.failed)
		r.compare(p.remember(r.key(), c), c)
	}
	for of := range p.seen {
		if _, there := now[of]; !there {
			delete(p.seen, of)
		}
	}
}

// remember stores counters, and returns the earlier ones to compare them with.
func (p *poller) remember(of key, c counts) (before counts) {
	list := p.seen[of]
	if n := len(list); n > 0 {
		last := list[n-1]
		if c.succeeded < last.succeeded || c.failed < last.failed || c.executions < last.executions {
			list = nil // reloaded, or the server was restarted
		} else if !c.at.After(last.at) {
			return list[0]
		}
	}
	list = append(list, c)
	for len(list) > 2 && c.at.Sub(list[1].at) >= rateSpan {
		list = list[1:]
	}
	p.seen[of] = list
	return list[0]
}

// compare computes rates from two counts.
func (r *Row) compare(before, now counts) {
	span := now.at.Sub(before.at).Seconds()
	if span <= 0 {
		return
	}
	requests := now.succeeded - before.succeeded
	r.Rate, r.Errors = number(requests/span), number((now.failed-before.failed)/span)
	r.Batch, r.Mean = nil, nil
	if n := now.executions - before.executions; n > 0 {
		r.Batch = number((now.inferences - before.inferences) / n)
	}
	if requests > 0 {
		r.Mean = number((now.seconds - before.seconds) / requests)
	}
}
