package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// TestTurnTranscripts plays testdata/turns. The first lines of a case are the configs of models
// that share one resource. Each has one instance that executes for 400 ms. Requests follow at given
// times; the first letter of an id names the model. "up b'" adds an instance to model b; "lose b"
// and "retire b" take one away. An effect is a batch that an instance begins, an error, a drained
// instance, or the requests that are pending, each but the last with its time in ms.
func TestTurnTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/turns/*.txt", func(t *testing.T) func(string) []string {
		return newSharing(t).step
	})
}

// sharing is a set of models whose instances need the same resource.
type sharing struct {
	t        *testing.T
	timeline *timeline
	limiter  *ratelimit.Limiter
	group    *kserve.ModelInstanceGroup
	graph    *waitgraph.Graph
	models   map[string]*sharer
	asked    map[string]*infer.Request
	told     int // number of timeline lines already returned
}

// sharer is one of the models, with the instances that the limiter has passed on.
type sharer struct {
	*scheduler.Batcher
	counts  counter
	events  *ratelimit.Events
	limited map[string]backend.Instance
}

// Available implements backend.Events.
func (s *sharer) Available(in backend.Instance) {
	s.limited[in.Name()] = in
	s.Batcher.Available(in)
}

// limitedInstance is a timedInstance of a group.
type limitedInstance struct {
	timedInstance
	group *kserve.ModelInstanceGroup
}

func (p *limitedInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{GroupMember: p}
}

func (p *limitedInstance) Group() *kserve.ModelInstanceGroup { return p.group }
func (p *limitedInstance) Device() int32                     { return 0 }

func newSharing(t *testing.T) *sharing {
	s := &sharing{
		t: t, timeline: &timeline{begun: time.Now()}, limiter: ratelimit.New(nil), group: &kserve.ModelInstanceGroup{},
		graph: waitgraph.New(zerolog.Nop(), waitgraph.Patience), models: map[string]*sharer{}, asked: map[string]*infer.Request{},
	}
	if err := prototext.Unmarshal([]byte(`rate_limiter { resources [ { name: "R" count: 1 } ] }`), s.group); err != nil {
		t.Fatal(err)
	}
	if _, err := s.limiter.Reserve([]*kserve.ModelInstanceGroup{s.group}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sharing) step(line string) []string {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "model":
		s.model(rest)
	case "end":
		s.end()
	default:
		s.timeline.wait(s.t, word, line)
		s.at(rest)
		synctest.Wait()
	}
	lines := s.timeline.all()
	effects := slices.Clone(lines[s.told:])
	s.told = len(lines)
	if rest == "pending" {
		for _, name := range slices.Sorted(maps.Keys(s.models)) {
			effects = append(effects, fmt.Sprintf("%s: %d pending", name, s.models[name].counts.Waiting.Load()))
		}
	}
	return effects
}

// model parses "a max_batch_size:4".
func (s *sharing) model(line string) {
	name, config, _ := strings.Cut(line, " ")
	m := &sharer{limited: map[string]backend.Instance{}}
	m.Batcher = scheduler.NewBatcher(scheduler.BatcherConfig{
		Model: name, Observer: &m.counts, Graph: s.graph, Batching: batching.NewRules(parseConfig(s.t, config)),
	})
	m.events = s.limiter.Events(m)
	s.models[name] = m
	s.up(name)
}

func (s *sharing) up(name string) {
	s.models[name[:1]].events.Available(&limitedInstance{timedInstance{
		name: name, label: name + " executes ", lasts: 400 * time.Millisecond, timeline: s.timeline,
	}, s.group})
}

// at changes an instance, as in "lose b", or sends a request, as in "b1 by=a1 timeout=100ms".
func (s *sharing) at(line string) {
	word, name, _ := strings.Cut(line, " ")
	switch word {
	case "pending":
	case "up":
		s.up(name)
	case "lose":
		m := s.models[name[:1]]
		m.events.Lost(m.limited[name].Capabilities().Wrapped, false)
	case "retire":
		m := s.models[name[:1]]
		m.Retire(m.limited[name], func() { s.timeline.tell("%s drained", name) })
	default:
		s.request(line)
	}
}

func (s *sharing) request(line string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	id, fields, _ := strings.Cut(line, " ")
	req := &infer.Request{ID: id, BatchSize: 1}
	s.asked[id] = req
	for field := range strings.FieldsSeq(fields) {
		name, value, _ := strings.Cut(field, "=")
		duration, _ := time.ParseDuration(value)
		switch name {
		case "by":
			req.Caller = infer.NewCaller(value[:1], 1, []*infer.Request{s.asked[value]}, true)
		case "priority":
			req.Priority, _ = strconv.ParseUint(value, 10, 64)
		case "timeout":
			req.TimeoutMicros = uint64(duration.Microseconds())
		case "gone":
			time.AfterFunc(time.Until(s.timeline.begun.Add(duration)), cancel)
		}
	}
	err := s.models[id[:1]].Submit(ctx, req, func(r *infer.Response) {
		if r.Err != nil {
			s.timeline.tell("%s failed: %s", id, strings.TrimSuffix(r.Err.Status(), ": "))
		}
	})
	if err != nil {
		s.t.Errorf("%s: %v", id, err)
	}
}

// end waits until every request has its last response.
func (s *sharing) end() {
	time.Sleep(time.Minute)
	synctest.Wait()
	for name, m := range s.models {
		if n := m.counts.Waiting.Load(); n != 0 || m.counts.Negative.Load() || m.InFlight() != 0 {
			s.t.Errorf("at the end %d of %s are pending, %d in flight; fewer than none for a while: %v", n, name, m.InFlight(), m.counts.Negative.Load())
		}
	}
	if u := s.limiter.Usage(); u != (ratelimit.Usage{}) {
		s.t.Errorf("left are %+v", u)
	}
}
