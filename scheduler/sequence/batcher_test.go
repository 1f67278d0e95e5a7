package sequence

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

const (
	noID      = "Invalid argument: inference request to model 'm' must specify a non-zero or non-empty correlation ID"
	noStart   = "Invalid argument: inference request for sequence %s to model 'm' must specify the START flag on the first request of the sequence"
	tooLong   = "Unavailable: timeout of the corresponding sequence has been expired"
	stopping  = "Unavailable: Server is stopping, scheduler for model has stopped accepting new inference requests"
	cancelled = "Cancelled:"
	notWell   = "Internal: Stub process 'i' is not healthy."
)

func mustStart(id string) string { return strings.Replace(noStart, "%s", id, 1) }

// direct is a config of the Direct strategy.
func direct(maxBatch int, delay uint64, fill float32) Config {
	return Config{MaxBatch: maxBatch, Batching: &kserve.ModelSequenceBatching{
		StrategyChoice: &kserve.ModelSequenceBatching_Direct{Direct: &kserve.ModelSequenceBatching_StrategyDirect{
			MaxQueueDelayMicroseconds: delay, MinimumSlotUtilization: fill,
		}},
	}}
}

func TestAdmissionNeedsAStartedSequence(t *testing.T) {
	tell(t, []story{
		{"no id", direct(0, 0, 0), []string{"up i", "send a none S", "refused a " + noID}},
		{"no START", direct(0, 0, 0), []string{"up i", "send a 7 -", "refused a " + mustStart("7"), "send b x E", "refused b " + mustStart("x")}},
		{"numbers and texts differ", direct(0, 0, 0), []string{
			"up i; send a 7 S; has i a; end i",
			"send b x S; waits b", // in the backlog: the slot is 7's
			"send c 7 E; has i c; end i; has i b; end i", "send d x E; has i d; end i; got d",
		}},
		{"one request alone", direct(4, 0, 0), []string{"up i; send a 1 SE; has i a; live 0; end i; got a; send b 1 -; refused b " + mustStart("1")}},
		{"after END a new one", direct(1, 0, 0), []string{
			"up i; send a 1 S; has i a; send b 1 E; live 0; send c 1 S; live 1; send d 1 -",
			"end i; has i b; end i; has i c; end i; has i d; end i",
		}},
		{"START again", direct(1, 0, 0), []string{"up i; send a 1 S; send b 1 -; send c 1 S; end i; has i b; end i; has i c; end i; got c; live 1"}},
		{"stopped", direct(1, 0, 0), []string{
			"up i; send a 1 S; stop; send b 2 S; refused b " + stopping, "send c 1 -; end i; has i c; end i; got c",
		}},
		{"no instance", direct(1, 0, 0), []string{"send a 1 S; waits a; up i; has i a"}},
	})
}

func TestAdmissionRefusesBatches(t *testing.T) {
	s := New(Config{Model: "m", Observer: &tally{}, MaxBatch: 8})
	const want = "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
	err := s.Submit(t.Context(), &infer.Request{BatchSize: 2, Correlation: infer.CorrelationID{Number: 1}}, nil)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSequenceConflictIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassroom(t, direct(1, 0, 0))
		c.run("up i; send a x S; send b x S; end i; has i b")
		const want = "sequence x for model 'm' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("the log has %s, want %s", c.log.String(), want)
		}
		c.leave()
	})
}

func TestSlotsAreGivenInOrder(t *testing.T) {
	tell(t, []story{
		{"slot 0 of every instance before slot 1", direct(2, 0, 0), []string{
			"up i; up j; send a 1 S; send b 2 S; has i a; has j b; end i; end j",
			"send c 3 S; has i . c; send d 4 S; has j . d; end i; end j",
			"send e 1 -; send f 3 -; has i e; end i; has i . f; end i; send g 2 E; has j g; end j",
			"send h 5 SE; has j h",
		}},
		{"backlog, first come first served", direct(2, 0, 0), []string{
			"up i; send a 1 S; send b 2 S; has i a; end i; has i . b; end i",
			"send c 3 S; send d 4 SE; waits c; waits d; send e 3 -; waits e",
			"send f 2 E; has i . f; end i; has i . c; end i; has i . e; end i; waits d",
			"send g 1 -; has i g; end i; send h 1 E; has i h; end i; has i d; end i; got d",
		}},
		{"a slot is given on when END is taken", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 E; send c 2 S; waits c; end i; has i b; live 1; end i; has i c",
		}},
		{"no slot of an instance that is down", direct(1, 0, 0), []string{
			"up i; up j; restart i; send a 1 S; has j a; send b 2 S; waits b; up i; has i b; end i; end j",
		}},
		{"retired while its sequences go on", direct(1, 0, 0), []string{
			"up i; up j; send a 1 S; send b 2 S; has j b; end j; retire j; send c 3 S; waits c",
			"send d 2 -; has j d; end j; send e 2 E; has j e; end j; drained j; waits c; end i; send f 1 E; has i f; end i; has i c",
		}},
		{"retired for good", direct(1, 0, 0), []string{"up i; retire i; drained i; up i; up j; send a 1 S; has i; has j a; lose i; send b 1 E; end j; has j b"}},
		{"retired beside one that is lost", direct(1, 0, 0), []string{
			"up i; up j; send a 1 S; send b 2 S; lose j; send c 3 S; waits c; retire i; got c Internal: Stub process 'j' is not healthy.",
			"send d 3 S; refused d Internal: Stub process 'j' is not healthy.; end i; send e 1 E; has i e; end i; got e; drained i",
		}},
		{"retired at once", direct(1, 0, 0), []string{"up i; up j; retire j; drained j; send a 1 S; has i a; send b 2 S; waits b; end i; send c 1 E; has i c; end i; has i b"}},
	})
}

func TestDirectTakesOneOfEachSlot(t *testing.T) {
	tell(t, []story{
		{"one of each slot", direct(4, 0, 0), []string{
			"up i; send a 1 S; has i a; send b 2 S; send c 3 S; send d 1 -; send e 1 -; end i; has i d b c; end i; has i e; end i",
			"send f 3 -; has i . . f",
		}},
		{"delay until enough slots are used", direct(4, 100_000, 0.5), []string{
			"up i; send a 1 S; has i; wait 50ms; has i; send b 2 S; has i a b; end i",
			"send c 2 -; has i; wait 101ms; has i . c",
		}},
		{"a delay alone is none", direct(4, 100_000, 0), []string{"up i; send a 1 S; has i a"}},
		{"a part alone is none", direct(4, 0, 1), []string{"up i; send a 1 S; has i a"}},
	})
}

func TestDirectHoldsUntilEnough(t *testing.T) {
	hold := func(requests, backlog int) Config {
		c := direct(2, 0, 0)
		c.HoldRequests, c.HoldBacklog = requests, backlog
		return c
	}
	tell(t, []story{
		{"requests", hold(3, 0), []string{"up i; send a 1 S; send b 2 S; has i; send c 1 -; has i a b; end i; has i c; end i; send d 2 -; has i . d"}},
		{"until the end", hold(3, 0), []string{"up i; send a 1 SE; has i; stop; has i a"}},
		{"backlog", hold(2, 2), []string{"up i; send a 1 SE; send b 2 SE; send c 3 SE; has i; send d 4 SE; has i a b; end i; has i c d"}},
	})
}

func TestIdleSequencesAreForgotten(t *testing.T) {
	tell(t, []story{
		{"forgotten", direct(1, 0, 0), []string{"up i; send a 1 S; end i; wait 999ms; live 1; wait 1ms; live 0; send b 1 -; refused b " + mustStart("1")}},
		{"each request begins the time anew", direct(1, 0, 0), []string{
			"up i; send a 1 S; end i; wait 700ms; send b 1 -; end i; wait 700ms; send c 1 E; end i; got c",
		}},
		{"what waits is executed", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 -; wait 1s; live 0; send c 2 S; end i; has i b; end i; has i c",
		}},
		{"the slot goes on", direct(1, 0, 0), []string{"up i; send a 1 S; end i; wait 500ms; send b 2 S; waits b; wait 500ms; has i b; end i"}},
		{"not in the backlog", direct(1, 0, 0), []string{
			"up i; send a 1 S; end i; send b 2 S; wait 600ms; send c 1 -; end i; wait 600ms; send d 1 E; live 1; has i d; end i; has i b; end i",
			"wait 600ms; send e 2 E; has i e; end i; got e",
		}},
		{"in the order of their last requests", direct(4, 0, 0), []string{
			"up i; send a 1 S; end i; wait 100ms; send b 2 S; end i; wait 100ms; send c 3 S; end i; wait 100ms; send d 1 -; end i",
			"wait 800ms; live 2; wait 100ms; live 1; send e 1 -; send f 2 -; refused f " + mustStart("2"),
		}},
	})
}

func TestBacklogTimesOutByTheEarliest(t *testing.T) {
	tell(t, []story{
		{"the earliest of its requests counts", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 2 S 800ms; send c 2 - 200ms; wait 199ms; waits b; wait 1ms; got b " + tooLong + "; got c " + tooLong,
			"send d 2 -; refused d " + mustStart("2"),
		}},
		{"not with a slot", direct(1, 0, 0), []string{"up i; send a 1 S 100ms; send b 1 E 100ms; wait 200ms; waits b; end i; has i b"}},
		{"forgotten with a slot", direct(1, 0, 0), []string{"up i; send a 1 SE; send b 2 SE; send c 3 SE 300ms; wait 200ms; end i; end i; has i c; wait 200ms; waits c"}},
		{"others wait on", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 2 SE 500ms; send c 3 SE 100ms; send d 4 SE; wait 100ms; got c " + tooLong + "; waits b; wait 400ms; got b " + tooLong + "; end i",
			"send e 1 E; has i e; end i; has i d",
		}},
	})
}

func TestCancelledRequestsEndTheirSequence(t *testing.T) {
	tell(t, []story{
		{"next in its slot", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 -; send c 1 -; send d 2 S; cancel b; got b " + cancelled + "; got c " + cancelled + "; live 1; end i; got a; has i d",
		}},
		{"behind another", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 -; send c 1 -; send d 1 E; cancel c; waits c; end i; has i b; end i; got c " + cancelled + "; got d " + cancelled,
		}},
		{"in the backlog", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 2 S; send c 2 -; cancel c; got b " + cancelled + "; got c " + cancelled + "; live 1",
		}},
		{"while it is executed", direct(1, 0, 0), []string{"up i; send a 1 S; cancel a; waits a; send b 1 -; end i; got a; has i b"}},
	})
}

func TestLostInstanceEndsItsSequences(t *testing.T) {
	tell(t, []story{
		{"what it had begun has ended", direct(1, 0, 0), []string{
			"up i; send a 1 S; end i; send b 1 -; send c 1 -; restart i; got b Internal: lost; got c " + notWell,
			"send d 1 -; refused d " + mustStart("1") + "; up i; send e 1 S; has i e",
		}},
		{"where nothing waits", direct(1, 0, 0), []string{"up i; send a 1 S; end i; restart i; live 0; send b 1 -; refused b " + mustStart("1")}},
		{"it begins anew from START", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 -; send c 1 S; send d 1 -; restart i; got b " + notWell + "; waits c; up i; has i c; end i; has i d",
		}},
		{"what it had not begun goes elsewhere", direct(2, 0, 0), []string{
			"up i; send a 1 S; send b 2 S; up j; restart i; got a Internal: lost; has j b; end j; send c 2 E; has j c",
		}},
		{"for good", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 2 S; lose i; got b " + notWell + "; send c 3 S; refused c " + notWell,
		}},
		{"before it began what it was given", direct(1, 0, 0), []string{
			"up i; send a 1 S; send b 1 -; staged i; waits a; waits b; up i; has i a; end i; has i b; staged i; got b " + notWell + "; live 0",
		}},
		{"another one serves on", direct(1, 0, 0), []string{
			"up i; up j; send a 1 S; send b 2 S; end i; lose i; send c 2 -; end j; has j c; end j; send d 1 S; waits d; send e 2 E; has j e; end j; has j d",
		}},
	})
}

// oldest is a config of the Oldest strategy.
func oldest(maxBatch int, candidates int32, delay uint64, preferred ...int32) Config {
	return Config{MaxBatch: maxBatch, Batching: &kserve.ModelSequenceBatching{
		StrategyChoice: &kserve.ModelSequenceBatching_Oldest{Oldest: &kserve.ModelSequenceBatching_StrategyOldest{
			MaxCandidateSequences: candidates, MaxQueueDelayMicroseconds: delay, PreferredBatchSize: preferred,
		}},
	}}
}

func TestOldestBatchesItsCandidates(t *testing.T) {
	tell(t, []story{
		{"one request of a sequence at a time", oldest(4, 8, 0), []string{
			"up i; send a 1 S; has i a; send b 1 -; send c 2 S; send d 3 S; waits b; end i; has i c d b; send e 1 -; end i; has i e",
		}},
		{"as many sequences as candidates", oldest(4, 2, 0), []string{
			"up i; send a 1 S; send b 2 S; send c 3 S; has i a; end i; has i b; end i; has i; waits c; send d 2 E; has i d; end i; has i c",
		}},
		{"without a number, as many as a batch has", oldest(1, 0, 0), []string{"up i; send a 1 S; end i; send b 2 S; waits b; send c 1 E; end i; has i b"}},
		{"who takes the slot waits for what has left it", oldest(4, 1, 0), []string{
			"up i; send a 1 SE; has i a; live 0; send b 2 S; live 1; waits b; end i; has i b",
		}},
		{"preferred sizes and delay", oldest(4, 4, 100_000, 2), []string{
			"up i; send a 1 S; has i; wait 50ms; has i; send b 2 S; has i a b; end i; send c 1 -; has i; wait 100ms; has i c",
		}},
		{"each instance has a batcher of its own", oldest(2, 2, 0), []string{
			"up i; up j; send a 1 S; send b 2 S; has i a; has j b; send c 3 S; waits c; end j; has j; end i; has i c; end i",
			"send d 2 -; has j d; send e 1 -; has i e",
		}},
		{"idle", oldest(2, 1, 0), []string{
			"up i; send a 1 S; send b 2 S; end i; wait 1s; has i b; end i; send c 1 -; refused c " + mustStart("1"),
		}},
		{"canceled", oldest(2, 2, 0), []string{
			"up i; send a 1 S; send b 1 -; send c 2 S; send d 2 -; send e 2 -; cancel e; waits e; cancel b; got b " + cancelled + "; end i; has i c; end i; has i d",
			"end i; got e " + cancelled,
		}},
		{"canceled in the batcher", oldest(1, 2, 0), []string{"up i; send a 1 S; send b 2 S; send c 2 -; cancel b; got b " + cancelled + "; end i; has i c"}},
		{"what it had begun has ended", oldest(1, 2, 0), []string{
			"up i; send a 1 S; end i; send b 2 S; send c 1 -; send d 1 -; restart i; got c " + notWell + "; got d " + notWell,
			"got b Internal: lost; live 0; up i; has i; send e 1 S; has i e",
		}},
		{"what it had not begun goes elsewhere", oldest(1, 2, 0), []string{
			"up i; send a 1 S; send b 2 S; send c 2 -; send d 3 SE; up j; has j d; restart i; got a Internal: lost; end j; has j b; end j; has j c",
		}},
		{"before it began what it was given", oldest(1, 2, 0), []string{
			"up i; send a 1 S; send b 1 -; send c 2 S; staged i; waits a; waits b; waits c; up i; has i a; end i; has i c; end i; has i b; staged i; waits b; up i; got b " + notWell + "; live 0",
		}},
		{"for good", oldest(1, 2, 0), []string{
			"up i; send a 1 S; send b 2 S; send c 3 S; lose i; got b " + notWell + "; got c " + notWell + "; send d 1 S; refused d " + notWell,
		}},
		{"retired", oldest(1, 1, 0), []string{
			"up i; up j; send a 1 S; end i; retire i; send b 2 S; has j b; end j; send c 1 -; has i c; end i; send d 1 E; has i d; end i; drained i; send e 3 S; waits e; send f 2 E; has j f; end j; has j e",
		}},
		{"stopped", oldest(1, 1, 0), []string{"up i; send a 1 S; send b 1 -; stop; end i; has i b; send c 1 -; end i; has i c"}},
		{"hold", func() Config { c := oldest(2, 2, 0); c.HoldRequests, c.HoldBacklog = 2, 1; return c }(), []string{
			"up i; send a 1 S; send b 2 S; has i; send c 3 S; has i a b",
		}},
		{"hold until the end", func() Config { c := oldest(2, 2, 0); c.HoldRequests = 2; return c }(), []string{"up i; send a 1 SE; has i; stop; has i a"}},
	})
}

func TestReleasedRequestsKeepTheirSlot(t *testing.T) {
	iterative := func(c Config) Config {
		c.Batching.IterativeSequence = true
		return c
	}
	for _, c := range []struct {
		name   string
		config Config
	}{{"direct", iterative(direct(2, 0, 0))}, {"oldest", iterative(oldest(2, 2, 0))}} {
		t.Run(c.name, func(t *testing.T) {
			tell(t, []story{
				{"again and again", c.config, []string{"up i; send a none -; has i a; again i; has i a; again i; waits a; has i a; end i; got a; live 0"}},
				{"an id of its own", c.config, []string{"up i; send a 7 S; has i a; again i; has i a; end i; got a; live 0; send b 7 -; refused b " + mustStart("7")}},
				{"as many as there are slots", c.config, []string{
					"up i; send a none -; send b none -; send c none -; has i a; again i; live 3; waits b; waits c; end i; end i",
				}},
				{"with END", c.config, []string{"up i; send a 9 SE; again i; got a " + mustStart("9"), "send b none -; has i b; end i; got b"}},
				{"idle meanwhile", c.config, []string{"up i; send a 9 S; wait 1s; live 0; again i; got a " + mustStart("9")}},
				{"canceled", c.config, []string{"up i; send a none -; cancel a; waits a; again i; got a " + cancelled}},
				{"lost", c.config, []string{"up i; send a none -; again i; restart i; got a Internal: lost; live 0; up i; send b none -; has i b"}},
			})
		})
	}
	tell(t, []story{{"not configured", oldest(1, 1, 0), []string{
		"up i; send a 1 S; again i; got a Internal: Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.",
		"send b 1 -; has i b",
	}}})
}

// What a retired instance says at its end does not bring it back.
func TestSequenceForgetsRetiredInstances(t *testing.T) {
	s := New(Config{Model: "m", Observer: &tally{}, Batching: direct(1, 0, 0).Batching})
	for _, known := range []bool{true, false} {
		in := backendtest.NewInstance("i", 0)
		if known {
			s.Available(in)
		}
		drained := false
		s.Retire(in, func() { drained = true })
		s.Lost(in, false)
		s.Available(in)
		if !drained || len(s.instances.MembersLocked()) != 0 {
			t.Errorf("known before: %v: drained: %v, %d instances are left", known, drained, len(s.instances.MembersLocked()))
		}
		s.Lost(in, true)
		s.Lost(in, true) // hopeless before its end, which is said besides
		if len(s.instances.MembersLocked()) != 0 {
			t.Errorf("known before: %v: %d instances are left", known, len(s.instances.MembersLocked()))
		}
		s.Forget(in)
		if len(s.instances.MembersLocked())+s.instances.RememberedLocked() != 0 {
			t.Errorf("known before: %v: %d instances are left, %d are remembered", known, len(s.instances.MembersLocked()), s.instances.RememberedLocked())
		}
	}
}
