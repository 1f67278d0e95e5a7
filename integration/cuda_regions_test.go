package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// cudaHeld doubles its input. A request with an id holds its execution until a file exists.
const cudaHeld = `
import os, time

class TritonPythonModel(Base):
    def execute(self, requests):
        how = requests[0].request_id()
        if how == "keep": # unseen
            self.kept = pb_utils.get_input_tensor_by_name(requests[0], "IN")
            return answer(put("OUT", [0]))
        if how == "kept":
            kept, self.kept = self.kept, None
            return answer(self.one(kept))
        if how == "same": # by a tensor of the model's own, on the device if the input is
            return answer(pb_utils.Tensor.from_dlpack("OUT", pb_utils.get_input_tensor_by_name(requests[0], "IN")))
        if how:
            open(how + ".begun", "w").close()
            while not os.path.exists(how + ".over"):
                time.sleep(0.002)
        return super().execute(requests)

    def one(self, x):
        if %s:
            assert not x.is_cpu()
            return put("OUT", values(x) * 2, x.__dlpack_device__()[1])
        return pb_utils.Tensor("OUT", x.as_numpy() * 2)
`

// cudaServer launches a server whose clients may register device memory.
func cudaServer(t *testing.T) (s *runningServer, state string) {
	head := fmt.Sprintf(onDeviceHead, filepath.Join(testkit.Root(t), "stub", "tests"))
	texts := strings.ReplaceAll(onDeviceConfig, "TYPE_FP32", "TYPE_STRING")
	state = filepath.Join(t.TempDir(), "state")
	s = launchOnDevices(t, writeFiles(t, map[string]string{
		"host/config.pbtxt":   onDeviceConfig,
		"host/1/model.py":     head + fmt.Sprintf(cudaHeld, "False"),
		"device/config.pbtxt": onDeviceConfig + takesDevices,
		"device/1/model.py":   head + fmt.Sprintf(cudaHeld, "True"),
		"texts/config.pbtxt":  texts,
		"texts/1/model.py": head + `
class TritonPythonModel(Base):
    def one(self, x):
        return pb_utils.Tensor("OUT", x.as_numpy())
`,
	}), state, nil, "--allow-gpu-metrics=false", "--allow-client-shm=true")
	s.waitReady()
	return s, state
}

// runCUDAClient runs testdata/cuda_regions.py with the server's CUDA driver.
func (s *runningServer) runCUDAClient(state, model string, what ...string) {
	s.t.Helper()
	s.runCUDAScript("cuda_regions.py", state, model, what...)
}

func (s *runningServer) runCUDAScript(script, state, model string, what ...string) {
	s.t.Helper()
	root := testkit.Root(s.t)
	folders := strings.Join([]string{filepath.Join(root, "stub", "tests"), filepath.Join(root, "pyutils")}, ":")
	arguments := append(onDevice(s.t, state), clientPython(s.t), filepath.Join("testdata", script),
		fmt.Sprintf("127.0.0.1:%d", s.http), fmt.Sprintf("127.0.0.1:%d", s.grpc), model, s.t.TempDir(), folders)
	arguments = append(arguments, what...)
	if output, err := exec.Command("env", arguments...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s %s %q: %v\n%s", script, model, what, err, output)
	}
}

// allClosed waits until no process has memory of another process open.
func (s *runningServer) allClosed(state string) {
	s.t.Helper()
	s.until("rid of all regions", func() bool {
		_, live := fakeState(s.t, state)
		return s.figure("nereid_client_regions") == 0 && live["opened"] == 0
	})
	s.notLeaking(state)
}

// TestClientsRegisterMemoryOfDevices checks that real clients can exchange tensors through device
// memory.
func TestClientsRegisterMemoryOfDevices(t *testing.T) {
	testkit.Story(t)
	for _, model := range []string{"host", "device"} { // the location of the model's inputs
		t.Run(model, func(t *testing.T) {
			s, state := cudaServer(t)
			s.runCUDAClient(state, model)
			s.allClosed(state)
			// Handles are opened and closed, and none is closed more often than it was opened.
			counts, _ := fakeState(t, state)
			if opened, closed := counts["cuIpcOpenMemHandle_v2"], counts["cuIpcCloseMemHandle"]; !realDevice() && (opened == 0 || closed == 0 || closed > opened) {
				t.Errorf("allocations were opened %d times and closed %d times", opened, closed)
			}
		})
	}
}

// TestMemoryOfDevicesSurvivesTheCopier kills the copiers, which have the clients' memory open. The
// clients must be served again.
func TestMemoryOfDevicesSurvivesTheCopier(t *testing.T) {
	testkit.Story(t)
	s, state := cudaServer(t)
	s.runCUDAClient(state, "host")
	helpers := s.deviceHelpers()
	if len(helpers) != 2 && (!realDevice() || len(helpers) == 0) {
		t.Fatalf("got helpers %v, want one for each device", helpers)
	}
	s.runCUDAClient(state, "host", "dies:"+strings.Join(strings.Fields(strings.Trim(fmt.Sprint(helpers), "[]")), ","))
	s.allClosed(state)
}

// TestOutputsStayOnTheDeviceOfTheirClient returns inputs in the clients' device memory as outputs
// in device memory. Only the clients' own reads may copy to the host.
func TestOutputsStayOnTheDeviceOfTheirClient(t *testing.T) {
	s, state := cudaServer(t)
	s.runCUDAClient(state, "device", "stays")
	s.allClosed(state)
	if realDevice() {
		return // a real driver counts nothing
	}
	counts, _ := fakeState(t, state)
	const read, asked = 2 * 2 * 400_000, 2 * 2 * 5 // two clients read two outputs each, and request each five times
	if n := counts["bytes_to_host"]; n != read {
		t.Errorf("%d bytes came to the host, want the %d that the clients read", n, read)
	}
	// Each input is copied for the model and each output is copied back. For the second client, the
	// output is copied between devices.
	if n, m := counts["cuMemcpyDtoD_v2"], counts["cuMemcpyPeer"]; n != asked+asked/2 || m != asked/2 {
		t.Errorf("%d copies on a device and %d between devices, want %d and %d", n, m, asked+asked/2, asked/2)
	}
	// The copier and the model's process each open three regions per client.
	if opened, closed := counts["cuIpcOpenMemHandle_v2"], counts["cuIpcCloseMemHandle"]; opened != 12 || closed != 12 {
		t.Errorf("allocations were opened %d times and closed %d times, want 12", opened, closed)
	}
}

// TestOutputsOfClientsThatHaveEnded checks outputs for memory of a client that has exited. They
// must go through the host to the process that has the memory open.
func TestOutputsOfClientsThatHaveEnded(t *testing.T) {
	testkit.Story(t)
	s, state := cudaServer(t)
	s.runCUDAClient(state, "device", "ended")
	s.allClosed(state)
}
