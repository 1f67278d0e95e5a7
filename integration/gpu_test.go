package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
	"golang.org/x/sys/unix"
)

// launchOnFakes launches a server that sees the fake devices, with additional environment variables
// of the form "NAME=value".
func launchOnFakes(t *testing.T, repository string, environment []string, flags ...string) *runningServer {
	t.Helper()
	program := append([]string{"env", "LD_LIBRARY_PATH=" + fakecuda.Dir(t)}, environment...)
	return launchBehind(t, program, testkit.Python(t).Path, repository, flags...)
}

// places sends requests to a model until instances on that number of devices have responded. It
// returns the sorted "<kind> <device> <instance>" of each.
func (s *runningServer) places(model string, devices int) []string {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	s.until(fmt.Sprintf("answering on %d devices", devices), func() bool {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				p, err := s.placement(model, 20)
				if err != nil {
					s.t.Errorf("%s: %v", model, err)
					return
				}
				mu.Lock()
				seen[p.Kind+" "+p.Device+" "+p.Instance] = true
				mu.Unlock()
			})
		}
		all.Wait()
		return len(seen) >= devices || s.t.Failed()
	})
	list := make([]string, 0, len(seen))
	for place := range seen {
		list = append(list, place)
	}
	slices.Sort(list)
	return list
}

// TestInstancesArePlacedOnDevices checks each kind of placement on a machine with two GPUs.
func TestInstancesArePlacedOnDevices(t *testing.T) {
	files := map[string]string{}
	models := map[string]struct {
		groups string
		want   string
	}{
		"none":   {"", "GPU 0 none_0, GPU 1 none_0"},
		"auto":   {"instance_group [ { gpus: [ 1 ] } ]", "GPU 1 auto_0_0"},
		"absent": {"instance_group [ { gpus: [ 0, 5 ] kind: KIND_CPU gpus: [ ] } ]", ""},
		"gpu":    {"instance_group [ { kind: KIND_GPU gpus: [ 0 ] count: 2 } ]", "GPU 0 gpu_0_0, GPU 0 gpu_0_1"},
		"cpu":    {"instance_group [ { kind: KIND_CPU } ]", "CPU 0 cpu_0_0"},
		"whole":  {"instance_group [ { kind: KIND_MODEL } ]", "MODEL 0 whole_0_0"},
		"second": {"instance_group [ { kind: KIND_MODEL secondary_devices [ { kind: KIND_NVDLA device_id: 3 } ] } ]", "MODEL 0 second_0_0"},
		"beyond": {"instance_group [ { kind: KIND_GPU gpus: [ 0, 7 ] } ]", ""},
	}
	for name, m := range models {
		files[name+"/config.pbtxt"] = placedConfig + m.groups
		files[name+"/1/model.py"] = placedModel
	}
	s := launchOnFakes(t, writeFiles(t, files), nil, "--exit-on-error=false", "--strict-readiness=false", "--host-policy=gpu_1,cpu-cores=0-0")
	s.waitReady()
	for name, m := range models {
		if m.want == "" {
			if status, body := s.request("GET", "/v2/models/"+name+"/ready", ""); status == http.StatusOK {
				t.Errorf("%s: got status %d (%s), want a refusal", name, status, body)
			}
			continue
		}
		if got := strings.Join(s.places(name, strings.Count(m.want, ",")+1), ", "); got != m.want {
			t.Errorf("%s: got %s, want %s", name, got, m.want)
		}
	}
	if p, err := s.placement("auto", 0); err != nil || !slices.Equal(p.Cores, []int{0}) {
		t.Errorf("cores under the host policy gpu_1: got %v (error %v), want core 0 alone", p.Cores, err)
	}
	if _, config := s.request("GET", "/v2/models/second/config", ""); !strings.Contains(config, `"secondary_devices":[{"kind":"KIND_NVDLA","device_id":"3"}]`) {
		t.Errorf("the secondary device is not in the config: %s", config)
	}
	if _, config := s.request("GET", "/v2/models/none/config", ""); !strings.Contains(config, `"instance_group":[{"name":"none","kind":"KIND_GPU","count":1,"gpus":[0,1],`) {
		t.Errorf("the config does not show the devices: %s", config)
	}
	for _, line := range []string{
		"instance group absent_0 of model absent has kind KIND_CPU but specifies one or more GPUs",
		"instance group beyond_0 of model beyond specifies invalid or unsupported gpu id 7. GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1",
		"TRITONBACKEND_ModelInstanceInitialize: none_0 (GPU device 1)", "TRITONBACKEND_ModelInstanceInitialize: cpu_0_0 (CPU device 0)",
		`\"min-compute-capability\":\"6.000000\"`, "| min_supported_compute_capability | 6.0 ",
		"| cuda_memory_pool_byte_size{1}    | 67108864 ",
	} {
		if !s.prints(strings.ReplaceAll(line, `\"`, `"`)) {
			t.Errorf("the log does not say %q", line)
		}
	}
}

// TestDevicesFollowTheOrderOfTheDriver checks that the server uses the devices in the driver's
// order, and passes CUDA_VISIBLE_DEVICES to models unchanged.
func TestDevicesFollowTheOrderOfTheDriver(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": placedConfig, "m/1/model.py": placedModel})
	for _, c := range []struct{ visible, want string }{{"1", "GPU 0 m_0"}, {"", "CPU 0 m_0"}, {"1,0", "GPU 0 m_0, GPU 1 m_0"}} {
		t.Run("visible "+c.visible, func(t *testing.T) {
			s := launchOnFakes(t, repository, []string{"CUDA_VISIBLE_DEVICES=" + c.visible})
			s.waitReady()
			if got := strings.Join(s.places("m", strings.Count(c.want, ",")+1), ", "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if p, err := s.placement("m", 0); err != nil || p.Visible != c.visible {
				t.Errorf("the model sees CUDA_VISIBLE_DEVICES %q (error %v), want %q", p.Visible, err, c.visible)
			}
		})
	}
}

// TestDevicesBelowTheMinimumAreLeftOut checks --min-supported-compute-capability with device 3 of
// the fakes, which has compute capability 5.2.
func TestDevicesBelowTheMinimumAreLeftOut(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"m/config.pbtxt": placedConfig + "instance_group [ { kind: KIND_GPU } ]", "m/1/model.py": placedModel,
	})
	for _, c := range []struct{ minimum, refusal string }{
		{"9.5", "has kind KIND_GPU but no GPUs are available"},
		{"5.2", ""},
	} {
		s := launchOnFakes(t, repository, []string{fakecuda.Devices + "=4", fakecuda.Old + "=3", "CUDA_VISIBLE_DEVICES=3"}, "--exit-on-error=false",
			"--strict-readiness=false", "--min-supported-compute-capability="+c.minimum)
		s.waitReady()
		if c.refusal == "" {
			if got := s.places("m", 1); !slices.Equal(got, []string{"GPU 0 m_0_0"}) {
				t.Errorf("got %s", got)
			}
		} else if !s.prints(c.refusal) {
			t.Errorf("the log does not say %q", c.refusal)
		}
	}
}

// TestMetricsOfDevices checks the metrics while the device helper measures, after the helper was
// killed, and when GPU metrics are disabled.
func TestMetricsOfDevices(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": placedConfig, "m/1/model.py": placedModel})
	s := launchOnFakes(t, repository, nil, "--metrics-interval-ms=0")
	s.waitReady()
	uuid := fakecuda.UUID(1)
	shown := func() bool { return strings.Contains(s.scrape(), "\nnv_gpu_utilization{gpu_uuid=\""+uuid+"\"} 0.26\n") }
	s.until("measuring", shown)
	s.wantSamples("# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)", `nv_gpu_memory_total_bytes{gpu_uuid="`+uuid+`"} 2147483648`,
		`nv_gpu_memory_used_bytes{gpu_uuid="`+uuid+`"} 104857600`, `nv_gpu_power_usage{gpu_uuid="`+uuid+`"} 70.501`,
		`nv_gpu_power_limit{gpu_uuid="`+uuid+`"} 700`, "# TYPE nv_energy_consumption counter")
	for _, line := range []string{"Collecting metrics for GPU 0: Fake Device 0", "Collecting metrics for GPU 1: Fake Device 1"} {
		if !s.prints(line) {
			t.Errorf("the log does not say %q", line)
		}
	}
	s.places("m", 2)
	model := regexp.MustCompile(`(?m)^nv_inference_count\{gpu_uuid="` + uuid + `",model="m",version="1"\} ([1-9]\d*)$`)
	if page := s.scrape(); !model.MatchString(page) || !strings.Contains(page, "\nnv_inference_count{model=\"m\",version=\"1\"} 0\n") {
		t.Errorf("what the GPU executes is not counted for it alone:\n%s", page)
	}
	if n := strings.Count(s.scrape(), `nereid_instance_resident_bytes{gpu_uuid="GPU-`); n != 2 {
		t.Errorf("%d instances on GPUs have the figures of their processes, want 2:\n%s", n, s.scrape())
	}
	helpers := s.deviceHelpers()
	if len(helpers) != 1 {
		t.Fatalf("got device helpers %v, want one", helpers)
	}
	if err := unix.Kill(helpers[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !s.prints("there are no GPU metrics until the device helper runs again") {
		t.Error("the log does not say that metrics are missing")
	}
	s.until("measuring again", shown)
	if p, err := s.placement("m", 0); err != nil || p.Kind != "GPU" {
		t.Errorf("got an instance on %s (error %v), want one on a GPU as before", p.Kind, err)
	}

	s = launchOnFakes(t, repository, nil, "--allow-gpu-metrics=false")
	s.waitReady()
	if page := s.scrape(); strings.Contains(page, "nv_gpu_") || strings.Contains(s.log.String(), "Collecting metrics for GPU") {
		t.Errorf("GPUs have metrics that are not wanted:\n%s", page)
	}
	s.until("without a device helper", func() bool { return len(s.deviceHelpers()) == 0 })
}

// TestMemoryLimitRefusesLoads checks --model-load-gpu-limit with 100 MiB in use on each device,
// which is a tenth of the first and a twentieth of the second. Only the first must reject the load.
func TestMemoryLimitRefusesLoads(t *testing.T) {
	files := map[string]string{}
	for gpu, model := range []string{"first", "second"} {
		files[model+"/config.pbtxt"] = placedConfig + fmt.Sprintf("instance_group [ { kind: KIND_GPU gpus: [ %d ] } ]", gpu)
		files[model+"/1/model.py"] = placedModel
	}
	s := launchOnFakes(t, writeFiles(t, files), nil, "--exit-on-error=false", "--strict-readiness=false", "--allow-gpu-metrics=false",
		"--model-load-gpu-limit=0:.07", "--model-load-gpu-limit=1:.07")
	s.waitReady()
	if !s.prints("can not create model 'first_0_0': memory limit set for GPU 0 has exceeded, model loading is rejected.") {
		t.Error("the log does not say that the limit refuses the first model")
	}
	if p, err := s.placement("second", 0); err != nil || p.Device != "1" {
		t.Errorf("got device %s (error %v), want 1", p.Device, err)
	}
	s.until("without the first model's process", func() bool { return len(s.stubs()) == 1 })
}

// deviceHelpers lists the device helpers of the server.
func (s *runningServer) deviceHelpers() (pids []int) {
	for _, pid := range s.descendants() {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(line), "nereid_devices") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestDeviceHelperEndsWithTheServer kills the server while the driver hangs. The device helper must
// not outlive it.
func TestDeviceHelperEndsWithTheServer(t *testing.T) {
	s := launchOnFakes(t, writeFiles(t, map[string]string{"m/config.pbtxt": placedConfig, "m/1/model.py": placedModel}), []string{fakecuda.Init + "=hang"})
	var children []int
	s.until("counting behind a lifeline", func() bool {
		children = s.descendants()
		return len(children) > 0 && !slices.ContainsFunc(children, func(pid int) bool { return !behindLifeline(pid) })
	})
	if err := unix.Kill(s.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.wait(startLimit)
	s.gone(children)
}

// behindLifeline reports whether the end of a file sends a signal to the process. The server sets
// this up right after the start.
func behindLifeline(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	return slices.ContainsFunc(files, func(path string) bool {
		text, _ := os.ReadFile(path)
		var position, flags int64
		_, err := fmt.Sscanf(string(text), "pos: %d\nflags: %o", &position, &flags)
		return err == nil && flags&unix.O_ASYNC != 0
	})
}

// TestScriptsForDevicesRunOnTheFakes runs the scripts of "make test-gpu" and "make bench-gpu" on
// the fakes, as on a machine with a GPU and without torch.
func TestScriptsForDevicesRunOnTheFakes(t *testing.T) {
	testkit.Story(t)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, turns, says string }{
		{"gpu/server.py", "", "all checks hold"},
		{"gpu/regions.py", "", "nothing of it is left"},
		{"../bench/gpu/clients.py", "2", "64 MiB / 4 B of a client"},
	} {
		t.Run(c.script, func(t *testing.T) {
			script := exec.Command(testkit.Python(t).Path, append([]string{c.script, binary}, strings.Fields(c.turns)...)...)
			script.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakecuda.Dir(t), "FAKECUDA_STATE="+filepath.Join(t.TempDir(), "state"))
			if text, err := script.CombinedOutput(); err != nil || !strings.Contains(string(text), c.says) {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
