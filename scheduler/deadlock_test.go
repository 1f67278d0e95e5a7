package scheduler_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// TestGraphRefusesWhatCannotBeExecuted checks that the last step of each case, which closes a
// deadlock, is rejected.
func TestGraphRefusesWhatCannotBeExecuted(t *testing.T) {
	const selfCall = "Model 'a' cannot be called: every instance of it waits for this call (a → a)"
	for _, c := range []struct {
		name, models string
		steps        []string
		want         string
	}{
		{"itself", "a1", []string{"ask r a", "call q r a"}, selfCall},
		{"itself, two instances", "a2", []string{"ask r a", "call q r a", "runs q", "call p q a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → a)"},
		{"two requests that call their model", "a2", []string{"ask r a", "ask s a", "call q r a", "waits q", "call p s a"}, selfCall},
		{"round two models", "a1 b1", []string{"ask r a", "call q r b", "call p q a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"},
		{"round three models", "a1 b1 c1", []string{"ask r a", "call q r b", "call p q c", "call o p a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → c → a)"},
		{"two requests call each other's model", "a1 b1", []string{"ask r a", "ask s b", "call q r b", "waits q", "call p s a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"},
		{"the last free instance goes to a client", "a2", []string{"ask r a", "ask s a", "call q r a", "waits q", "call p s a"}, selfCall},
		{"one of many calls", "a1 b1 c2", []string{"ask r a", "call q r b", "call p r c", "call o r c", "call n q a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"},
		{"a queue before it", "a1 b1", []string{"ask r a", "ask s a", "ask t a", "call q r b", "call p q a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"},
		{"one ahead of it", "a1", []string{"ahead a0", "ask r a", "ask s a", "call q r a"}, selfCall},
		{"all of several instances", "a2 b2 c1", []string{"ask r a", "ask s a", "call q r b", "call p s b", "call o q c", "call n p c", "waits n", "call m o a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → c → a)"},
		{"a batch that calls its model", "a1x4", []string{"ask 0 a", "ask r a", "ask s a", "end 0", "runs r", "runs s", "call q s a"}, selfCall},
		{"a batch of calls", "a2 b1x2", []string{"ask r a", "ask s a", "ask 0 b", "call q r b", "call p s b", "end 0", "runs q", "runs p", "call o p a"},
			"Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"},
		{"other instances are lost", "a3", []string{"lose a1", "lose a2", "ask r a", "call q r a"}, selfCall},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := scheduler.NewWorld(t, c.models)
				for i, step := range c.steps {
					err := w.Step(step)
					last := i == len(c.steps)-1
					if !last && err != nil {
						t.Fatalf("step %q was refused: %v", step, err)
					}
					var e *infer.Error
					if last && (!errors.As(err, &e) || e.Code != infer.Unavailable || e.Message != c.want) {
						t.Errorf("step %q: got error %v, want %q", step, err, c.want)
					}
				}
				w.Finish()
			})
		})
	}
}

// TestGraphLetsOthersWait checks that every request is executed in cases that only look like a
// deadlock or a cycle.
func TestGraphLetsOthersWait(t *testing.T) {
	for _, c := range []struct {
		name, models string
		steps        []string
	}{
		{"a free instance", "a2", []string{"ask r a", "call q r a", "runs q"}},
		{"an instance is busy with something else", "a2", []string{"ask r a", "ask s a", "call q r a", "waits q"}},
		{"an instance is busy with what waits for something that will be", "a2 b1",
			[]string{"ask r a", "ask s a", "ask t b", "call p s b", "waits p", "call q r a", "waits q"}},
		{"an instance is being restarted", "a2", []string{"restart a1", "ask r a", "call q r a", "waits q", "up a1", "runs q"}},
		{"execute has returned", "a1 b1", []string{"ask r a", "call q r b", "return q", "spawn p q b", "runs p"}},
		{"execute has returned, and its call has not", "a1 b1", []string{"ask r b", "call q r a", "return r", "ask s b", "call p q b", "waits p"}},
		{"not known in which execution", "a1", []string{"ask r a", "spawn q r a", "waits q"}},
		{"a call that was answered", "a1 b1", []string{"ask r a", "call q r b", "answer q", "call p q a", "waits p"}},
		{"a call whose client has gone", "a1 b1 c1", []string{"ask x c", "ask r a", "ask s b", "call q r b", "waits q", "cancel q", "call p s a", "waits p"}},
		{"a diamond", "a1 b1 c1 d1", []string{"ask r a", "call q r b", "call p r c", "call o q d", "call n p d", "waits n"}},
		{"many calls of one execution", "a1 b1", []string{"ask r a", "call q r b", "call p r b", "waits p", "call o r b", "waits o"}},
		{"a chain", "a1 b1 c1 d1", []string{"ask r a", "call q r b", "call p q c", "call o p d", "runs o"}},
		{"a client", "a1 b1", []string{"ask r a", "call q r b", "ask s a", "ask t b", "waits s", "waits t"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := scheduler.NewWorld(t, c.models)
				for _, step := range c.steps {
					if err := w.Step(step); err != nil {
						t.Errorf("step %q was refused: %v", step, err)
					}
					synctest.Wait()
				}
				w.Finish()
			})
		})
	}
}

// TestGraphWhenAnInstanceIsLostForGood checks that calls that wait for a restarting instance are
// rejected when it becomes hopeless.
func TestGraphWhenAnInstanceIsLostForGood(t *testing.T) {
	w := scheduler.NewWorld(t, "a2 b1")
	for _, step := range []string{"restart a1", "ask r a", "call p r b", "call q p a", "call o p a", "waits q", "waits o"} {
		if err := w.Step(step); err != nil {
			t.Fatalf("step %q: %v", step, err)
		}
	}
	w.Models["a"].Lost(w.Instances["a1"], true)
	const want = "Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"
	for _, id := range []string{"q", "o"} {
		if got := w.Asked[id].Final.Load(); got == nil || got.Err == nil || got.Err.Message != want {
			t.Errorf("call %s: got %+v, want %q", id, got, want)
		}
	}
	if n := w.Counts["a"].Failures.Load(); n != 2 {
		t.Errorf("%d failed, want 2", n)
	}
	w.Finish()
}

// TestGraphIsPatientWithTheBackground lets a model that continues after its execution make a call
// whose only instance waits for that model. It checks that the call is rejected only after nothing
// has happened for a while, because the model may not be waiting for the call.
func TestGraphIsPatientWithTheBackground(t *testing.T) {
	begin := []string{"ask r a", "call q r b", "return q", "spawn p q a", "waits p"}
	for _, c := range []struct {
		name    string
		steps   []string // one step per 0.7 of the patience
		refused bool
	}{
		{"nothing happens", []string{"wait", "wait"}, true},
		{"the call is answered", []string{"wait", "answer q", "end r", "runs p"}, false},
		{"the call is being answered", []string{"say q", "say q", "say q", "waits p", "say q", "answer q"}, false},
		{"the call is no longer being answered", []string{"say q", "say q", "wait", "wait", "wait"}, true},
		{"its client goes", []string{"cancel p"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := scheduler.NewWorld(t, "a1 b1")
				for _, step := range begin {
					if err := w.Step(step); err != nil {
						t.Fatalf("step %q: %v", step, err)
					}
				}
				for _, step := range c.steps {
					_ = w.Step(step)
					time.Sleep(waitgraph.Patience * 7 / 10)
					synctest.Wait()
				}
				const want = "Model 'a' cannot be called: every instance of it waits for this call (a → b → a)"
				got := w.Asked["p"].Final.Load()
				if refused := got != nil && got.Err != nil && got.Err.Message == want; refused != c.refused {
					t.Errorf("the call: got %+v, want it refused: %v", got, c.refused)
				}
				w.Finish()
				time.Sleep(2 * waitgraph.Patience) // no check may run any more
			})
		})
	}
}
