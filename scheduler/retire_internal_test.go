package scheduler

import (
	"slices"
	"testing"
)

// TestRetiredInstancesGetNothingMore retires instances in different states and checks that they get
// no more batches and that each is drained once.
func TestRetiredInstancesGetNothingMore(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    []string
		want     []int // number of drained calls after each step
		answered int   // instances for which Retire reported that all last responses had been sent
	}{
		{"idle", []string{"retire a0", "ask r a", "runs r"}, []int{1, 1, 1}, 1},
		{"answered", []string{"ask r a", "ask s a", "answer r", "say s", "retire a0", "retire a1", "end s", "end r"}, []int{0, 0, 0, 0, 0, 0, 1, 2}, 1},
		{"executing", []string{"ask r a", "ask s a", "retire a0", "retire a1", "ask t a", "end r", "waits t", "end s", "waits t", "up a0", "waits t"},
			[]int{0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2}, 0},
		{"lost", []string{"ask r a", "ask s a", "retire a0", "retire a1", "restart a0", "lose a1", "ask t a", "up a0", "waits t"},
			[]int{0, 0, 0, 0, 1, 2, 2, 2, 2}, 0},
		{"never up", []string{"restart a0", "retire a0", "up a0", "ask r a", "ask s a", "waits s"}, []int{0, 1, 1, 1, 1, 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWorld(t, "a2")
			for i, step := range c.steps {
				if err := w.Step(step); err != nil {
					t.Fatalf("step %q: %v", step, err)
				}
				if w.drained != c.want[i] {
					t.Fatalf("after %q: drained was called %d times, want %d", step, w.drained, c.want[i])
				}
			}
			if w.answered != c.answered {
				t.Errorf("%d instances had answered everything, want %d", w.answered, c.answered)
			}
			fresh := &actor{world: w, Called: "a9", model: "a"}
			w.Models["a"].Available(fresh)
			w.Finish()
			for name, a := range w.Instances {
				if !slices.ContainsFunc(c.steps, func(s string) bool { return s == "retire "+name }) {
					continue
				}
				w.Models["a"].Lost(a, true)
				w.Models["a"].Lost(a, true) // hopeless can be reported before the end and again at the end
				if list := w.Models["a"].instances.MembersLocked(); slices.ContainsFunc(list, func(m *member) bool { return m.Instance() == a }) {
					t.Errorf("%s is a member again", name)
				}
				w.Models["a"].Forget(a)
			}
			if n := w.Models["a"].instances.RememberedLocked(); n != 0 {
				t.Errorf("%d retired instances are kept after their end", n)
			}
		})
	}
}
