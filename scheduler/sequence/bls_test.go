package sequence_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// TestCircularCallsOfSequencesAreRefused checks that a BLS request to a model with sequences is
// rejected if every slot that it could get waits for it.
func TestCircularCallsOfSequencesAreRefused(t *testing.T) {
	for _, strategy := range []struct {
		name   string
		config func(slots int32) sequence.Config
	}{
		{"direct", func(slots int32) sequence.Config { return direct(int(slots), 0, 0) }},
		{"oldest", func(slots int32) sequence.Config { return oldest(int(slots), slots, 0) }},
	} {
		t.Run(strategy.name, func(t *testing.T) {
			for _, c := range []struct {
				name      string
				slots     int32
				instances []string
				id        uint64 // the called sequence; the caller's is 1
				flags     uint32
				want      string
			}{
				{"in the backlog, for itself", 1, []string{"i"}, 2, infer.SequenceStart, "Model 'm' cannot be called: every instance of it waits for this call (m → m)"},
				{"in a slot of the instance that waits", 2, []string{"i"}, 2, infer.SequenceStart, "Model 'm' cannot be called: every instance of it waits for this call (m → m)"},
				{"of its own sequence", 2, []string{"i", "j"}, 1, 0, "Model 'm' cannot be called: every instance of it waits for this call (m → m)"},
				{"another instance has a slot", 1, []string{"i", "j"}, 2, infer.SequenceStart, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := newFixture(t, strategy.config(c.slots))
						for _, in := range c.instances {
							m.run("up " + in)
						}
						m.run("send a 1 S; has i a")
						p := m.send(&infer.Request{
							ID: "b", Model: "m", Correlation: infer.CorrelationID{Number: c.id}, Flags: c.flags, BatchSize: 1,
							Caller: infer.NewCaller("m", 1, []*infer.Request{m.clients["a"].seen}, true),
						})
						got := ""
						if p.refused != nil {
							got = p.refused.Error()
						} else if p.final != nil && p.final.Err != nil { // rejected by the instance's batcher
							got = p.final.Err.Error()
						}
						if got != c.want {
							t.Errorf("the call was refused with %q, want %q", got, c.want)
						}
						if c.want == "" {
							m.run("has j b; end j; got b")
						} else {
							m.run("live 1")
						}
						m.run("end i; send c 1 E; has i c; end i; got c")
						m.leave()
						if n := m.config.Graph.Open(); n != 0 {
							t.Errorf("%d requests have open BLS requests at the end", n)
						}
					})
				})
			}
		})
	}
}

// TestRetiringInstancesDoNotPreventRejection checks that a BLS request is rejected if one instance
// executes its caller and the other one is retiring with its only slot taken, whichever event comes
// first.
func TestRetiringInstancesDoNotPreventRejection(t *testing.T) {
	const want = "Model 'm' cannot be called: every instance of it waits for this call (m → m)"
	for name, config := range map[string]func() sequence.Config{
		"direct": func() sequence.Config { return direct(1, 0, 0) },
		"oldest": func() sequence.Config { return oldest(1, 1, 0) },
	} {
		for _, first := range []string{"call", "retire"} {
			t.Run(name+", "+first+" first", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newFixture(t, config())
					m.run("up i; up j; send a 1 S; has i a; send s 2 S; has j s; end j; got s")
					var p *client
					call := func() {
						p = m.send(&infer.Request{
							ID: "b", Model: "m", Correlation: infer.CorrelationID{Number: 3}, Flags: infer.SequenceStart | infer.SequenceEnd, BatchSize: 1,
							Caller: infer.NewCaller("m", 1, []*infer.Request{m.clients["a"].seen}, true),
						})
					}
					if first == "call" {
						call()
						m.run("waits b; retire j")
					} else {
						m.run("retire j")
						call()
					}
					got := ""
					if p.refused != nil {
						got = p.refused.Error()
					} else if p.final != nil && p.final.Err != nil {
						got = p.final.Err.Error()
					}
					if got != want {
						t.Errorf("the call was refused with %q, want %q", got, want)
					}
					m.run("send e 2 E; has j e; end j; got e; drained j; end i; got a")
					m.leave()
					if n := m.config.Graph.Open(); n != 0 {
						t.Errorf("%d requests have open BLS requests at the end", n)
					}
				})
			})
		}
	}
}

// TestSequenceCallsThroughAnother checks that a BLS request that comes back to a model with
// sequences through another model is rejected.
func TestSequenceCallsThroughAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFixture(t, direct(2, 0, 0))
		var counts tally
		other := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "other", Observer: &counts, Graph: m.config.Graph})
		in := backendtest.NewHeld("other_0")
		other.Available(in)
		m.run("up i; send a 1 S; has i a")
		var last *infer.Response
		if err := other.Submit(context.Background(), &infer.Request{Model: "other", Caller: infer.NewCaller("m", 1, []*infer.Request{m.clients["a"].seen}, true)},
			func(r *infer.Response) { last = r }); err != nil {
			t.Fatal(err)
		}
		b := in.Batches[0]
		p := m.send(&infer.Request{
			ID: "b", Model: "m", Correlation: infer.CorrelationID{Number: 2}, Flags: infer.SequenceStart, BatchSize: 1,
			Caller: infer.NewCaller("other", 1, []*infer.Request{b.Tasks[0].Request}, true),
		})
		const want = "Model 'm' cannot be called: every instance of it waits for this call (m → other → m)"
		if p.refused == nil || p.refused.Error() != want {
			t.Errorf("the call was refused with %v, want %s", p.refused, want)
		}
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
		if last == nil {
			t.Error("the other model's request was not answered")
		}
		m.run("end i; got a; live 1")
		m.leave()
	})
}

// TestReschedulingEndsOpenBLSRequests checks that a BLS request that is still open when its caller
// is rescheduled does not count for the caller's next execution.
func TestReschedulingEndsOpenBLSRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := direct(1, 0, 0)
		config.Batching.IterativeSequence = true
		m := newFixture(t, config)
		var counts tally
		other := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "other", Observer: &counts, Graph: m.config.Graph})
		in := backendtest.NewHeld("other_0")
		other.Available(in)
		m.run("up i; send a 1 S; has i a")
		for _, req := range []*infer.Request{
			{ID: "client's"},
			{ID: "call", Caller: infer.NewCaller("m", 1, []*infer.Request{m.clients["a"].seen}, true)},
		} {
			if err := other.Submit(context.Background(), req, func(*infer.Response) {}); err != nil {
				t.Fatal(err)
			}
		}
		m.run("again i; has i a")
		p := m.send(&infer.Request{
			ID: "b", Correlation: infer.CorrelationID{Number: 2}, Flags: infer.SequenceStart, BatchSize: 1,
			Caller: infer.NewCaller("other", 1, []*infer.Request{in.Batches[0].Tasks[0].Request}, true),
		})
		if p.refused != nil {
			t.Errorf("the call was refused: %v", p.refused)
		}
		m.run("waits b; end i; has i b; end i")
		for i := range 2 {
			b := in.Batches[i]
			b.Done(b, backend.Report{Executed: true})
			b.Tasks[0].Send(&infer.Response{Final: true})
		}
		m.leave()
	})
}
