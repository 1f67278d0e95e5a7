package scheduler_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestTranscripts plays testdata. A case begins with the config of a model and its instances,
// continues with requests and more instances ("up") at given times, and finishes with "end". An
// effect is a batch that an instance begins, takes ahead or returns, an error, or a rejection, each
// with its time in ms.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		s := &scripted{t: t, timeline: &timeline{begun: time.Now()}}
		return s.step
	})
}

// scripted is a batcher that gets its requests from a script.
type scripted struct {
	t        *testing.T
	timeline *timeline
	rules    *batching.Rules
	counter  counter
	*scheduler.Batcher
	told int // number of timeline lines already returned
}

func (s *scripted) step(line string) []string {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "config":
		s.rules = batching.NewRules(parseConfig(s.t, rest))
	case "instances":
		s.start(rest)
	case "end":
		s.end()
	default:
		s.timeline.wait(s.t, word, line)
		if name, more := strings.CutPrefix(rest, "up "); more {
			s.Available(&pipe{name: name, timeline: s.timeline})
			synctest.Wait()
		} else {
			s.request(rest)
		}
	}
	lines := s.timeline.all()
	effects := lines[s.told:]
	s.told = len(lines)
	return effects
}

// start parses "2 lasting=10ms volume=3": two instances that take 10 ms per batch. Instances that
// are "ahead" are pipes, for which each request says how long it "lasts".
func (s *scripted) start(line string) {
	number, options, _ := strings.Cut(line, " ")
	var lasting time.Duration
	var ahead *pipe
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "lasting":
			lasting, _ = time.ParseDuration(value)
		case "ahead":
			ahead = &pipe{late: value != "", skip: value == "skip", timeline: s.timeline}
		case "start_with":
			s.rules.StartWith = n
		case "volume":
			s.rules.Strategy = bytesAtMost(n)
		case "strategy":
			s.rules.Strategy, _ = batching.Single(nil)
		}
	}
	s.Batcher = scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: &s.counter, Batching: s.rules})
	n, _ := strconv.Atoi(number)
	for i := range n {
		if ahead != nil {
			s.Available(&pipe{name: fmt.Sprintf("i%d", i), late: ahead.late, skip: ahead.skip, timeline: s.timeline})
			continue
		}
		s.Available(&timedInstance{name: fmt.Sprint(i), lasts: lasting, timeline: s.timeline})
	}
}

// request parses request ids and the fields that apply to all of them.
func (s *scripted) request(line string) {
	var ids []string
	request := infer.Request{BatchSize: 1}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	for field := range strings.FieldsSeq(line) {
		name, value, named := strings.Cut(field, "=")
		n, _ := strconv.Atoi(value)
		duration, _ := time.ParseDuration(value)
		switch {
		case !named:
			ids = append(ids, field)
		case name == "size":
			request.BatchSize = int64(n)
		case name == "priority":
			request.Priority = uint64(n)
		case name == "timeout" || name == "lasts":
			request.TimeoutMicros = uint64(duration.Microseconds())
		case name == "made": // this long before it arrives
			request.Made = backend.Now() - int64(duration)
		case name == "gone":
			time.AfterFunc(time.Until(s.timeline.begun.Add(duration)), cancel)
		case name == "input":
			request.Inputs = append(request.Inputs, parseInput(value))
		}
	}
	for _, id := range ids {
		own := request
		own.ID = id
		err := s.Submit(ctx, &own, func(r *infer.Response) {
			if r.Err != nil {
				s.timeline.tell("%s failed: %s", id, strings.TrimSuffix(r.Err.Status(), ": "))
			}
		})
		if err != nil {
			s.timeline.tell("%s rejected: %v", id, err)
		}
		synctest.Wait()
	}
}

// end waits until every request has its last response.
func (s *scripted) end() {
	time.Sleep(time.Minute)
	synctest.Wait()
	if s.InFlight() != 0 || s.counter.Waiting.Load() != 0 {
		s.t.Errorf("at the end: %d in flight, %d pending", s.InFlight(), s.counter.Waiting.Load())
	}
	if err := s.Stop(s.t.Context()); err != nil {
		s.t.Error(err)
	}
}

// parseInput parses "A:3,4", or "S:1=x" with content, and adds a batch dimension.
func parseInput(text string) infer.Tensor {
	name, shape, _ := strings.Cut(text, ":")
	shape, content, _ := strings.Cut(shape, "=")
	in := infer.Tensor{Name: name, Shape: []int64{1}, Data: []byte(content)}
	for dim := range strings.SplitSeq(shape, ",") {
		n, _ := strconv.ParseInt(dim, 10, 64)
		in.Shape = append(in.Shape, n)
	}
	return in
}
