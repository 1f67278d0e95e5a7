package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

// TestGPUsAreShownByTheirUUID checks that the page shows the known values of each GPU, and that
// they are read once per interval.
func TestGPUsAreShownByTheirUUID(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	reads := 0
	list := func() []metrics.GPU {
		reads++
		return []metrics.GPU{
			{
				UUID: "GPU-a", Utilization: number(.25), MemoryTotal: number(85520809984), MemoryUsed: number(1 << 20),
				Power: number(70.5), PowerLimit: number(700), Energy: number(12.5),
			},
			{UUID: "GPU-b", Utilization: number(0)},
		}
	}
	r := metrics.New(metrics.Config{Interval: time.Hour})
	r.GPUs(list)
	page := metrics.Render(t, r)
	metrics.Contains(t, page,
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
	if metrics.Render(t, r); reads != 1 {
		t.Errorf("read %d times within the interval, want once", reads)
	}
	metrics.WantText(t, r.Custom("m").NewFamily(1, "nv_gpu_utilization", "", metrics.Gauge), "nv_gpu_utilization")

	always := metrics.New(metrics.Config{})
	always.GPUs(list)
	before := reads
	metrics.Render(t, always)
	if metrics.Render(t, always); reads != before+2 {
		t.Errorf("read %d times without an interval, want twice", reads-before)
	}
	if page := metrics.Render(t, metrics.New(metrics.Config{})); strings.Contains(page, "nv_gpu") {
		t.Errorf("a server without GPUs shows them:\n%s", page)
	}
}

// TestExecutionsOnGPUsHaveTheirLabel checks that executions on a GPU are counted with its label,
// everything else is counted for the version, and nothing is counted twice.
func TestExecutionsOnGPUsHaveTheirLabel(t *testing.T) {
	r := metrics.New(metrics.Config{Summaries: true, Histograms: true})
	m := r.Model("m", 1, metrics.ModelOptions{Tags: map[string]string{"a": "b"}, Cache: true})
	on := m.OnGPU("GPU-a")
	if m.OnGPU("GPU-a") != on || m.OnGPU("") != m {
		t.Error("a GPU has two counters, or none has its own")
	}
	m.Pending(1)
	m.Failure(metrics.ReasonRejected)
	m.FirstResponse(1e6)
	on.Success(2, metrics.Durations{Total: 5000})
	on.Failure(metrics.ReasonBackend)
	on.Execution()
	page := metrics.Render(t, r)
	metrics.Contains(t, page,
		`nv_inference_request_success{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 1`, `nv_inference_request_success{_a="b",model="m",version="1"} 0`,
		`nv_inference_count{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 2`, `nv_inference_exec_count{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 1`,
		`nv_inference_request_duration_us{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 5`,
		`nv_inference_request_failure{_a="b",gpu_uuid="GPU-a",model="m",reason="BACKEND",version="1"} 1`,
		`nv_inference_request_failure{_a="b",gpu_uuid="GPU-a",model="m",reason="REJECTED",version="1"} 0`,
		`nv_inference_request_failure{_a="b",model="m",reason="REJECTED",version="1"} 1`,
		`nv_inference_queue_summary_us_count{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 1`,
		`nereid_inference_request_seconds_count{_a="b",gpu_uuid="GPU-a",model="m",version="1"} 1`,
		`nv_inference_pending_request_count{_a="b",model="m",version="1"} 1`,
		`nv_inference_first_response_histogram_ms_count{_a="b",model="m",version="1"} 1`,
	)
	for _, family := range []string{
		"nv_inference_pending_request_count", "nv_model_load_duration_secs", "nv_cache_num_hits_per_model", "nv_inference_first_response_histogram_ms_count",
		"nv_inference_request_summary_us",
	} {
		if strings.Contains(page, family+`{_a="b",gpu_uuid`) {
			t.Errorf("%s is shown for a GPU", family)
		}
	}
	m.Close()
	if page := metrics.Render(t, r); strings.Contains(page, `model="m"`) {
		t.Errorf("the metrics of a closed version are shown:\n%s", page)
	}
}

// TestInstancesOfOneNameOnSeveralGPUsAreTold checks that instances with the same name have separate
// samples if they run on different GPUs.
func TestInstancesOfOneNameOnSeveralGPUsAreTold(t *testing.T) {
	r := metrics.New(metrics.Config{})
	r.Processes(func() []metrics.Process {
		return []metrics.Process{
			{Model: "m", Version: 1, Instance: "m_0", Device: 1, GPU: "GPU-a", CPU: time.Second, Resident: 1},
			{Model: "m", Version: 1, Instance: "m_0", Device: 2, GPU: "GPU-b", CPU: time.Second, Resident: 2},
			{Model: "m", Version: 1, Instance: "m_0", Resident: 4},
		}
	})
	metrics.Contains(t, metrics.Render(t, r),
		`nereid_instance_cpu_seconds_total{gpu_uuid="GPU-a",instance_name="m_0",model="m",version="1"} 1`,
		`nereid_instance_resident_bytes{gpu_uuid="GPU-b",instance_name="m_0",model="m",version="1"} 2`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",version="1"} 4`,
	)
}
