package metrics

import (
	"strings"
	"testing"
	"time"
)

// TestGPUsAreShownByTheirUUID: with what is known of each, and read again when the interval
// has passed.
func TestGPUsAreShownByTheirUUID(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	reads := 0
	list := func() []GPU {
		reads++
		return []GPU{
			{
				UUID: "GPU-a", Utilization: number(.25), MemoryTotal: number(85520809984), MemoryUsed: number(1 << 20),
				Power: number(70.5), PowerLimit: number(700), Energy: number(12.5),
			},
			{UUID: "GPU-b", Utilization: number(0)},
		}
	}
	r := New(Config{Interval: time.Hour})
	r.GPUs(list)
	page := render(t, r)
	contains(t, page,
		"# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)", "# TYPE nv_gpu_utilization gauge",
		`nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25`, `nv_gpu_utilization{gpu_uuid="GPU-b"} 0`,
		"# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes", `nv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 85520809984`,
		"# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes", `nv_gpu_memory_used_bytes{gpu_uuid="GPU-a"} 1048576`,
		"# HELP nv_gpu_power_usage GPU power usage in watts", `nv_gpu_power_usage{gpu_uuid="GPU-a"} 70.5`,
		"# HELP nv_gpu_power_limit GPU power management limit in watts", `nv_gpu_power_limit{gpu_uuid="GPU-a"} 700`,
		"# HELP nv_energy_consumption GPU energy consumption in joules since the Triton Server started",
		"# TYPE nv_energy_consumption counter", `nv_energy_consumption{gpu_uuid="GPU-a"} 12.5`,
	)
	if strings.Count(page, `gpu_uuid="GPU-b"`) != 1 {
		t.Errorf("what is not known of a GPU is shown:\n%s", page)
	}
	if render(t, r); reads != 1 {
		t.Errorf("read %d times within the interval, want once", reads)
	}
	wantText(t, r.Custom("m").NewFamily(1, "nv_gpu_utilization", "", Gauge), "nv_gpu_utilization")

	always := New(Config{})
	always.GPUs(list)
	before := reads
	render(t, always)
	if render(t, always); reads != before+2 {
		t.Errorf("read %d times without an interval, want twice", reads-before)
	}
	if page := render(t, New(Config{})); strings.Contains(page, "nv_gpu") {
		t.Errorf("a server without GPUs shows them:\n%s", page)
	}
}
