package process_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestProcessesAreMeasured checks the figures of a living process, before and after a loss, and
// that an ended instance has none.
func TestProcessesAreMeasured(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	memory := m.model.Capabilities().ReportMemory
	measured := func() bool {
		list := r.supervisor.Processes()
		if len(list) != 1 {
			return false
		}
		p := list[0]
		if p.Model != "identity" || p.Version != 1 || p.Instance != m.model.Instances()[0].Name() || p.Resident < 1<<20 || p.CPU < 0 || p.Arena <= 0 {
			t.Errorf("got %+v, want the process of the only instance", p)
		}
		return true
	}
	if !measured() || memory() <= 0 {
		t.Errorf("got %v and %d bytes, want a process", r.supervisor.Processes(), memory())
	}
	m.kill()
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.again) == 1 })
	testkit.Eventually(t, patience, measured)
	if n := r.counts.of(&r.counts.lost); n != 1 {
		t.Errorf("%d losses were counted, want 1", n)
	}
	m.close()
	if list := r.supervisor.Processes(); len(list) != 0 || memory() != 0 {
		t.Errorf("got %+v and %d bytes after the end, want none", list, memory())
	}
}
