package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// TestProcessesAreShown checks that the processes of two loads of one version are added up, and
// that the list is read once per interval.
func TestProcessesAreShown(t *testing.T) {
	list := []Process{
		{Model: "m", Version: 1, Instance: "m_0", CPU: 1500 * time.Millisecond, Resident: 100, Arena: 7, Holds: []Bytes{{"blocks", 5, 500}, {"frames", 6, 600}}},
		{Model: "m", Version: 1, Instance: "m_1", CPU: time.Second, Resident: 50, Arena: 8, Lent: 1 << 25, Holds: []Bytes{{"frames", 7, 600}}},
		{Model: "m", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 10, Arena: 1, Lent: 1},
		{Model: "m", Namespace: "/left", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 11, Arena: 2, Holds: []Bytes{{"frames", 9, 0}}},
		{Model: "m", Namespace: "/right", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 12, Arena: 3},
	}
	asked := 0
	ask := func() []Process { asked++; return list }
	r := New(Config{Interval: time.Hour})
	r.Processes(ask)
	want := []string{
		"# TYPE nereid_instance_cpu_seconds_total counter",
		`nereid_instance_cpu_seconds_total{instance_name="m_0",model="m",version="1"} 2.5`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",version="1"} 110`,
		`nereid_instance_resident_bytes{instance_name="m_1",model="m",version="1"} 50`,
		`nereid_arena_bytes{model="m",version="1"} 16`,
		`nereid_device_lent_bytes{model="m",version="1"} 33554433`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",namespace="/left",version="1"} 11`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",namespace="/right",version="1"} 12`,
		`nereid_arena_bytes{model="m",namespace="/right",version="1"} 3`,
		`nereid_model_memory_bytes{kind="blocks",model="m",version="1"} 5`,
		`nereid_model_memory_bytes{kind="frames",model="m",version="1"} 13`,
		`nereid_model_memory_bytes{kind="frames",model="m",namespace="/left",version="1"} 9`,
		`nereid_model_memory_limit_bytes{kind="blocks",model="m",version="1"} 500`,
		`nereid_model_memory_limit_bytes{kind="frames",model="m",version="1"} 600`,
	}
	Contains(t, Render(t, r), want...)
	if strings.Contains(Render(t, r), `nereid_device_lent_bytes{model="m",namespace`) {
		t.Error("memory of devices is shown of a model that has lent none")
	}
	if strings.Contains(Render(t, r), `nereid_model_memory_bytes{kind="frames",model="m",namespace="/right"`) {
		t.Error("memory is shown of a model that has the server hold none")
	}
	if strings.Contains(Render(t, r), `nereid_model_memory_limit_bytes{kind="frames",model="m",namespace="/left"`) {
		t.Error("a bound is shown of a model that has none")
	}
	list = nil
	Contains(t, Render(t, r), want...)
	if asked != 1 {
		t.Errorf("the list was made %d times within the interval, want once", asked)
	}
	r = New(Config{})
	r.Processes(ask)
	if text := Render(t, r); strings.Contains(text, "nereid_instance") || strings.Contains(text, "nereid_arena") {
		t.Errorf("processes are shown, of which there are none:\n%s", text)
	}
	for _, name := range []string{"nereid_arena_bytes", "nereid_model_memory_bytes", "nereid_model_memory_limit_bytes", "nereid_device_lent_bytes", "nereid_inference_queue_seconds_bucket", "nereid_stub_restarts_total"} {
		if !ownNames(&Config{})[name] {
			t.Errorf("a model may take the name %s, want it reserved", name)
		}
	}
}

func TestMachineFiguresAreRead(t *testing.T) {
	busy, idle := processors([]byte("cpu  1 2 3 10 20 4 5 6 100 200\ncpu0 9 9 9 9\n"))
	if busy != 21 || idle != 30 {
		t.Errorf("busy %d, idle %d, want 21 and 30", busy, idle)
	}
	total, available := memory([]byte("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\n"))
	if total != 1000<<10 || available != 300<<10 {
		t.Errorf("total %d, available %d", total, available)
	}
	text := Render(t, New(Config{CPU: true}))
	for _, name := range []string{"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
}

// TestInternalErrorsAreCountedFromTheStart checks that the page shows a count for each part before
// any error occurs, and that models cannot use the name of the metric.
func TestInternalErrorsAreCountedFromTheStart(t *testing.T) {
	r := New(Config{})
	before := Render(t, r)
	for _, where := range []string{"server", "connection", "request", "models", "scheduler", "life", "memory"} {
		if !strings.Contains(before, "\nnereid_internal_errors_total{where=\""+where+"\"} ") {
			t.Errorf("no count of %s in\n%s", where, before)
		}
	}
	line := func() (line string) {
		for line = range strings.Lines(Render(t, r)) {
			if strings.HasPrefix(line, `nereid_internal_errors_total{where="memory"}`) {
				return line
			}
		}
		return ""
	}
	first := line()
	_ = panics.Run(zerolog.Nop(), panics.Memory, func() error { panic("for the count") })
	if second := line(); first == "" || first == second {
		t.Errorf("got %q before a panic and %q after it, want another count", first, second)
	}
	if !ownNames(&Config{})["nereid_internal_errors_total"] {
		t.Error("a model may take the name of the internal errors, want it reserved")
	}
}
