package ratelimit_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/handover"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// fakeInstance is a limited instance that executes until the test ends it.
type fakeInstance struct {
	name    string
	group   *kserve.ModelInstanceGroup
	device  int32
	has     *backend.Batch
	begun   int
	awaited int
	told    []*backend.Task
}

func (s *fakeInstance) Name() string                      { return s.name }
func (s *fakeInstance) Ready(context.Context) error       { return nil }
func (s *fakeInstance) Group() *kserve.ModelInstanceGroup { return s.group }
func (s *fakeInstance) Device() int32                     { return s.device }
func (s *fakeInstance) Execute(b *backend.Batch)          { s.has, s.begun = b, s.begun+1 }
func (s *fakeInstance) Await(<-chan struct{})             { s.awaited++ }
func (s *fakeInstance) Cancel(t *backend.Task)            { s.told = append(s.told, t) }
func (s *fakeInstance) Ahead() bool                       { return true }
func (s *fakeInstance) Withdraw()                         {}

func (s *fakeInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Awaiter: s, Canceller: s, Pipeliner: s, GroupMember: s}
}

// fakeScheduler holds the instances that a limiter passes on, by name.
type fakeScheduler struct {
	up   map[string]backend.Instance
	down []string
}

func (s *fakeScheduler) Available(in backend.Instance) { s.up[in.Name()] = in }
func (s *fakeScheduler) Lost(in backend.Instance, hopeless bool) {
	s.down = append(s.down, fmt.Sprint(in.Name(), hopeless))
}

// groupOf parses a group in the text form of a config.
func groupOf(t testing.TB, text string) *kserve.ModelInstanceGroup {
	t.Helper()
	g := &kserve.ModelInstanceGroup{}
	if err := prototext.Unmarshal([]byte(text), g); err != nil {
		t.Fatal(err)
	}
	return g
}

// turns is a limiter with instances. Each batch has one request.
type turns struct {
	t       *testing.T
	limiter *ratelimit.Limiter
	events  *ratelimit.Events
	upper   *fakeScheduler
	inner   map[string]*fakeInstance
	tasks   map[string]*backend.Task // the last one of each instance
	ended   []string
}

// newTurns adds instances with these rate_limiter settings to a new limiter.
func newTurns(t *testing.T, explicit []ratelimit.Resource, instances map[string]string) *turns {
	l := ratelimit.New(explicit)
	upper := &fakeScheduler{up: make(map[string]backend.Instance)}
	w := &turns{t: t, limiter: l, events: l.Events(upper), upper: upper, inner: map[string]*fakeInstance{}, tasks: map[string]*backend.Task{}}
	for name, text := range instances {
		s := &fakeInstance{name: name, group: groupOf(t, "rate_limiter { "+text+" }")}
		if _, err := l.Reserve([]*kserve.ModelInstanceGroup{s.group}); err != nil {
			t.Fatal(err)
		}
		w.inner[name] = s
		w.events.Available(s)
	}
	return w
}

// give gives an instance a batch. Its request is made by the execution of the instance by, or by a
// client if by is "".
func (w *turns) give(name, by string) {
	r := &infer.Request{ID: name}
	if by != "" {
		r.Caller = infer.NewCaller(by, 1, []*infer.Request{w.tasks[by].Request}, true)
	}
	w.tasks[name] = &backend.Task{Context: w.t.Context(), Request: r}
	w.upper.up[name].Execute(&backend.Batch{
		Tasks: []*backend.Task{w.tasks[name]},
		Done: func(_ *backend.Batch, report backend.Report) {
			word := name + " ended"
			if report.Refused {
				word = name + " refused"
			}
			if report.Withdrawn {
				word += " withdrawn"
			}
			w.ended = append(w.ended, word)
		},
	})
}

// end ends the execution of an instance.
func (w *turns) end(name string, report backend.Report) {
	b := w.inner[name].has
	w.inner[name].has = nil
	b.Done(b, report)
}

// running returns the names of the executing instances.
func (w *turns) running() string {
	var names []string
	for name, s := range w.inner {
		if s.has != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestTranscripts plays testdata. "resource R 2 -1" makes an amount explicit for a device, and
// "instance a" adds an instance with its rate_limiter. The following lines give batches to
// instances, end them or cancel them. Another execution may make a batch's request ("give a by b").
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		var explicit []ratelimit.Resource
		groups := map[string]string{}
		var w *turns
		began, ended := map[string]int{}, 0
		return func(line string) (effects []string) {
			word, rest, _ := strings.Cut(line, " ")
			name, rest, _ := strings.Cut(rest, " ")
			switch word {
			case "resource":
				r := ratelimit.Resource{Name: name}
				if _, err := fmt.Sscan(rest, &r.Count, &r.Device); err != nil {
					t.Fatal(err)
				}
				explicit = append(explicit, r)
				return nil
			case "instance":
				groups[name] = rest
				return nil
			}
			if w == nil {
				w = newTurns(t, explicit, groups)
				t.Cleanup(w.checkResources)
			}
			w.step(word, name, strings.TrimPrefix(rest, "by "))
			effects = append(effects, w.ended[ended:]...)
			ended = len(w.ended)
			for _, name := range slices.Sorted(maps.Keys(w.inner)) {
				if s := w.inner[name]; s.begun > began[name] {
					began[name] = s.begun
					effects = append(effects, name+" executes")
				}
			}
			return effects
		}
	})
}

func (w *turns) step(word, name, by string) {
	switch word {
	case "give":
		w.give(name, by)
	case "end":
		w.end(name, backend.Report{Executed: true})
	case "cancel":
		in := w.upper.up[name].Capabilities().Canceller
		in.Cancel(&backend.Task{}) // a task of no batch
		in.Cancel(w.tasks[name])
	default:
		w.t.Fatalf("unknown step %q", word)
	}
}

// checkResources fails the test if resources are taken although no instance executes.
func (w *turns) checkResources() {
	if n := w.limiter.Usage().Taken; n > 0 && w.running() == "" {
		w.t.Errorf("no instance executes, and %d resources are taken", n)
	}
}

// TestLimitedInstanceForwardsCalls checks that a limited instance passes calls on to its
// inner instance.
func TestLimitedInstanceForwardsCalls(t *testing.T) {
	w := newTurns(t, nil, map[string]string{"a": `resources [ { name: "R" count: 1 } ]`, "b": `resources [ { name: "R" count: 1 } ]`})
	a, b := w.upper.up["a"], w.upper.up["b"]
	if a.Capabilities().Pipeliner != nil {
		t.Error("it takes batches ahead")
	}
	if backend.Innermost(a) != w.inner["a"] || a.Name() != "a" || a.Ready(t.Context()) != nil {
		t.Error("it does not show what it stands before")
	}
	w.give("a", "")
	w.give("b", "")
	a.Capabilities().Awaiter.Await(nil)
	b.Capabilities().Awaiter.Await(nil)
	if w.inner["a"].awaited != 1 || w.inner["b"].awaited != 0 {
		t.Error("what waits for its turn is awaited actively, or what executes is not")
	}
	task := &backend.Task{}
	a.Capabilities().Canceller.Cancel(task)
	if !slices.Equal(w.inner["a"].told, []*backend.Task{task}) {
		t.Errorf("it is told of %v", w.inner["a"].told)
	}
	a.Execute(&backend.Batch{Done: func(_ *backend.Batch, report backend.Report) {
		if !report.Refused {
			t.Errorf("a second batch: %+v", report)
		}
	}})

	// A lost instance gives its staged batch back. An executing batch is left to the instance.
	w.events.Lost(w.inner["b"], false)
	w.events.Lost(w.inner["a"], true)
	if got := fmt.Sprint(w.upper.down, w.ended); got != "[bfalse atrue] [b refused]" {
		t.Errorf("got %s", got)
	}
	w.end("a", backend.Report{})
	w.events.Available(w.inner["a"])
	if w.upper.up["a"] != a {
		t.Error("it came again as another one")
	}
	w.events.Forget(w.inner["a"])
	w.events.Lost(w.inner["a"], true)
	if len(w.upper.down) != 2 {
		t.Errorf("one that is forgotten was lost: %v", w.upper.down)
	}
}

func TestReserveRefusesImpossibleResources(t *testing.T) {
	group := func(text string) []*kserve.ModelInstanceGroup {
		return []*kserve.ModelInstanceGroup{groupOf(t, text)}
	}
	limited := func(resources string) string { return "rate_limiter { resources [ " + resources + " ] }" }
	const r5, g3 = `{ name: "R" count: 5 }`, `{ name: "G" global: true count: 3 }`
	for name, test := range map[string]struct {
		explicit []ratelimit.Resource
		present  string
		group    string
		refusal  string
	}{
		"nothing is explicit":        {nil, "", limited(r5), ""},
		"enough":                     {[]ratelimit.Resource{{"R", 5, ratelimit.AnyDevice}}, "", limited(r5), ""},
		"too little":                 {[]ratelimit.Resource{{"R", 4, ratelimit.AnyDevice}}, "", limited(r5), `Resource count for "R" is limited to 4 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
		"not mentioned":              {[]ratelimit.Resource{{"S", 9, ratelimit.AnyDevice}}, "", limited(r5), `Resource count for "R" is limited to 0 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
		"of another device":          {[]ratelimit.Resource{{"R", 9, 1}}, "", limited(r5), `Resource count for "R" is limited to 0 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
		"the larger of two":          {[]ratelimit.Resource{{"R", 2, 0}, {"R", 5, ratelimit.AnyDevice}}, "", limited(r5), ""},
		"the smaller of the same":    {[]ratelimit.Resource{{"R", 2, 0}, {"R", 5, 0}}, "", limited(r5), `Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
		"another case":               {[]ratelimit.Resource{{"r", 9, ratelimit.AnyDevice}}, "", limited(r5), `Resource count for "R" is limited to 0 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
		"global, of any device":      {[]ratelimit.Resource{{"G", 1, 0}, {"G", 5, 1}}, "", limited(g3), ""},
		"global and not":             {nil, limited(g3), limited(`{ name: "G" count: 1 }`), `Resource "G" is present as both global and device-specific resource in the model configuration.`},
		"not and global":             {nil, limited(`{ name: "G" count: 1 }`), limited(g3), `Resource "G" is present as both global and device-specific resource in the model configuration.`},
		"none at all":                {[]ratelimit.Resource{{"S", 9, ratelimit.AnyDevice}}, "", limited(`{ name: "R" count: 0 }`), ""},
		"passive ones need nothing":  {[]ratelimit.Resource{{"S", 9, ratelimit.AnyDevice}}, "", "passive: true " + limited(r5), ""},
		"on each of several devices": {[]ratelimit.Resource{{"R", 5, 0}}, "", "kind: KIND_GPU gpus: [ 0, 1 ] " + limited(r5), `Resource count for "R" is limited to 0 which will prevent scheduling of one or more model instances, the minimum required count is 5`},
	} {
		t.Run(name, func(t *testing.T) {
			l := ratelimit.New(test.explicit)
			var present *ratelimit.Share
			if test.present != "" {
				var err error
				if present, err = l.Reserve(group(test.present)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := l.Reserve(group(test.group))
			text := ""
			if err != nil {
				e := infer.AsError(err)
				text = e.Message
				if e.Code != infer.InvalidArg {
					t.Errorf("got code %v", e.Code)
				}
			}
			if text != test.refusal {
				t.Errorf("got %q, want %q", text, test.refusal)
			}
			s.Release()
			present.Release()
			// Nothing is left: a resource may be global or not.
			for _, kind := range []string{"", "global: true "} {
				s, err := l.Reserve(group(limited(`{ name: "R" ` + kind + `count: 0 }, { name: "G" ` + kind + `count: 0 }`)))
				if err != nil {
					t.Errorf("after the releases: %v", err)
				}
				s.Release()
			}
		})
	}
	var off *ratelimit.Limiter
	if s, err := off.Reserve(group(limited(r5))); err != nil || s != nil {
		t.Errorf("without a limiter: %v, %v", s, err)
	}
}

// TestTurnsComeFromDone checks the share of turns by priority of instances that are always busy.
// Only one can execute at a time, and each Done brings its next batch.
func TestTurnsComeFromDone(t *testing.T) {
	one := `resources [ { name: "R" count: 1 } ]`
	w := newTurns(t, nil, map[string]string{"a": one, "b": one + " priority: 2", "c": one + " priority: 3"})
	w.play(1100)
	a, b, c := w.inner["a"].begun, w.inner["b"].begun, w.inner["c"].begun
	if a < 598 || a > 602 || b < 298 || b > 302 || c < 198 || c > 202 {
		t.Errorf("a, b and c had %d, %d and %d turns, want 600, 300 and 200", a, b, c)
	}

	// Priorities count from the first turn.
	w = newTurns(t, nil, map[string]string{"a": one, "b": one + " priority: 2"})
	if first := strings.Join(w.play(100)[:25], ""); strings.Count(first, "a") != 17 {
		t.Errorf("the first turns were %s, want 17 and 8", first)
	}
}

// play lets all instances take turns until this number has ended and none executes. It returns the
// instances in the order of their turns.
func (w *turns) play(turns int) (order []string) {
	left, t := turns, w.t
	for _, name := range slices.Sorted(maps.Keys(w.upper.up)) {
		in := w.upper.up[name]
		var next func(*backend.Batch, backend.Report)
		next = func(*backend.Batch, backend.Report) {
			if left--; left > 0 {
				in.Execute(&backend.Batch{Tasks: []*backend.Task{{Context: t.Context(), Request: &infer.Request{ID: name}}}, Done: next})
			}
		}
		in.Execute(&backend.Batch{Tasks: []*backend.Task{{Context: t.Context(), Request: &infer.Request{ID: name}}}, Done: next})
	}
	for w.running() != "" {
		if strings.Contains(w.running(), " ") {
			t.Fatalf("%s execute at once", w.running())
		}
		order = append(order, w.running())
		w.end(w.running(), backend.Report{Executed: true})
	}
	return order
}

// immediate is an instance that responds before Execute returns.
type immediate struct{ final infer.Response }

func (*immediate) Name() string                { return "immediate" }
func (*immediate) Ready(context.Context) error { return nil }

func (*immediate) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (p *immediate) Execute(b *backend.Batch) {
	b.Done(b, backend.Report{Executed: true})
	b.Tasks[0].Send(&p.final)
}

// BenchmarkLimited measures a batch's way through a limiter and back.
func BenchmarkLimited(b *testing.B) {
	l := ratelimit.New(nil)
	upper := &fakeScheduler{up: make(map[string]backend.Instance)}
	l.Events(upper).Available(&immediate{infer.Response{Final: true}})
	in := upper.up["immediate"]
	batch := &backend.Batch{Tasks: []*backend.Task{{Context: b.Context(), Request: &infer.Request{}, Send: func(*infer.Response) {}}}, Done: func(*backend.Batch, backend.Report) {}}
	b.ReportAllocs()
	for b.Loop() {
		in.Execute(batch)
	}
}

// fakeWithoutCancel is an instance whose Cancel panics.
type fakeWithoutCancel struct{ fakeInstance }

func (s *fakeWithoutCancel) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: s, GroupMember: s}
}

func (*fakeWithoutCancel) Cancel(*backend.Task) { panic("a bug of an instance") }

// TestAPanicBehindATurn checks that a batch that an instance has already accepted gets no second
// Done, although Cancel panics within Execute: the caller would end the batch if Execute panicked.
func TestAPanicBehindATurn(t *testing.T) {
	w := newTurns(t, nil, nil)
	s := &fakeWithoutCancel{fakeInstance{name: "deaf", group: groupOf(t, "")}}
	w.events.Available(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := 0
	handover.Give(zerolog.Nop(), w.upper.up["deaf"], &backend.Batch{
		Tasks: []*backend.Task{{Context: ctx, Request: &infer.Request{}, Send: func(*infer.Response) { t.Error("got an answer, want none yet") }}},
		Done:  func(*backend.Batch, backend.Report) { done++ },
	})
	if s.has == nil || done != 0 {
		t.Fatalf("got %d times Done, want none while the batch is executed", done)
	}
	s.has.Done(s.has, backend.Report{Executed: true})
	if done != 1 {
		t.Errorf("got %d times Done, want 1", done)
	}
}
