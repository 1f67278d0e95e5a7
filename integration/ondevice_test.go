package integration

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

const onDeviceConfig = `
backend: "python"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
`

const takesDevices = `parameters [ { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "no" } } ]
`

const refusesArrays = `parameters [ { key: "AS_NUMPY_ON_GPU" value: { string_value: "error" } } ]
`

// onDeviceHead is the beginning of the models of these tests. It has functions for tensors on
// devices, which a producer of the stub's tests creates.
const onDeviceHead = `
import gc, os, signal, sys
sys.path.append(%q)
import numpy as np
import triton_python_backend_utils as pb_utils
from producer import OnDevice, place

def put(name, array, device=0):
    return pb_utils.Tensor.from_dlpack(name, OnDevice(np.asarray(array, np.float32), place(device)))

def values(tensor):
    raw = tensor.as_numpy() if tensor.is_cpu() else np.frombuffer(tensor._data.read(), np.float32)
    return raw.reshape(tensor.shape())

def call(model, *tensors, **how):
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=list(tensors), **how).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response.output_tensors()[0]

def answer(tensor):
    return [pb_utils.InferenceResponse([tensor])]

class Base:
    def execute(self, requests):
        assert len(requests) == 1
        if requests[0].request_id() == "lent": # has the stub a tensor at the server that has not come back?
            pool = requests[0].get_response_sender()._outlet._senders.answers()._pool
            return answer(pb_utils.Tensor("OUT", np.array([pool.lent()], np.float32)))
        return answer(self.one(pb_utils.get_input_tensor_by_name(requests[0], "IN")))
`

var onDeviceModels = map[string]struct{ config, source string }{
	// This model doubles its input on its device. If the input is on the host, it also adds 1000,
	// so that tests notice.
	"doubler": {takesDevices, `
class TritonPythonModel(Base):
    def one(self, x):
        device = 0 if x.is_cpu() else x.__dlpack_device__()[1]
        return put("OUT", values(x) * 2 + (1000 if x.is_cpu() else 0), device)
`},
	// This model doubles its input too, but its inputs are always on the host.
	"host": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        assert x.is_cpu()
        return put("OUT", x.as_numpy() * 2)
`},
	// This model calls the doubler with a tensor on the second device and returns its output. It wants
	// Triton's error of as_numpy.
	"caller": {refusesArrays, `
class TritonPythonModel(Base):
    def one(self, x):
        y = call("doubler", put("IN", x.as_numpy(), 1))
        assert not y.is_cpu() and y.__dlpack_device__() == (2, place(1)), y.__dlpack_device__()
        try:
            y.as_numpy()
        except pb_utils.TritonModelException:
            return y
        raise AssertionError("a tensor on a device became an array")
`},
	// This model requests the output on the host.
	"prefers": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
        y = call("doubler", put("IN", x.as_numpy()), preferred_memory=memory)
        assert y.is_cpu()
        return y
`},
	// This model makes three BLS requests to a model that accepts no device tensors.
	"mixed": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        for _ in range(3):
            y = call("host", put("IN", x.as_numpy()))
        return y
`},
	// This model sends one tensor twice, forwards the output, and then reads it again.
	"again": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        mine = put("IN", x.as_numpy())
        first, second = call("doubler", mine), call("doubler", mine)
        third = call("doubler", pb_utils.Tensor.from_dlpack("IN", first))
        assert (values(first) == values(second)).all() and (values(third) == 2 * values(first)).all()
        return third
`},
	// These models send a tensor back and forth, so that a process gets its own memory back.
	"returns": {takesDevices, `
class TritonPythonModel(Base):
    def one(self, x):
        return pb_utils.Tensor.from_dlpack("OUT", x) if not x.is_cpu() else put("OUT", x.as_numpy())
`},
	"echo": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        y = call("returns", put("IN", x.as_numpy()))
        assert not y.is_cpu()
        z = call("returns", pb_utils.Tensor.from_dlpack("IN", y))
        assert not z.is_cpu()
        return z
`},
	// The first model returns its input and kills itself for the input 13. The second still holds
	// its outputs then.
	"mortal": {takesDevices, `
class TritonPythonModel(Base):
    def one(self, x):
        if not x.is_cpu() and values(x)[0] == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return put("OUT", values(x))
`},
	"widow": {"", `
class TritonPythonModel(Base):
    def one(self, x):
        kept = call("mortal", put("IN", x.as_numpy()))
        seen = values(kept)
        late = call("mortal", put("IN", x.as_numpy() + 1))
        try:
            call("mortal", put("IN", np.full(4, 13)))
        except pb_utils.TritonModelException as error:
            assert "not healthy" in str(error), error
        assert (values(kept) == seen).all()
        try:
            values(late)
        except pb_utils.TritonModelException as error:
            assert "Failed to open the cudaIpcHandle" in str(error), error
        return kept
`},
}

const onDeviceEnsemble = `
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "host" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "a" } },
  { model_name: "doubler" model_version: -1 input_map { key: "IN" value: "a" } output_map { key: "OUT" value: "b" } },
  { model_name: "doubler" model_version: -1 input_map { key: "IN" value: "b" } output_map { key: "OUT" value: "OUT" } }
] }
`

// onDeviceServer launches a server with the models of these tests.
func onDeviceServer(t *testing.T) (s *runningServer, state string) {
	files := map[string]string{"chain/config.pbtxt": onDeviceEnsemble}
	tests := filepath.Join(testkit.Root(t), "stub", "tests")
	for name, m := range onDeviceModels {
		files[name+"/config.pbtxt"] = onDeviceConfig + m.config
		files[name+"/1/model.py"] = fmt.Sprintf(onDeviceHead, tests) + m.source
	}
	files["chain/1/.keep"] = ""
	state = filepath.Join(t.TempDir(), "state")
	s = launchOnDevices(t, writeFiles(t, files), state, []string{fakecuda.Lost + "=" + state + ".lost"}, "--allow-gpu-metrics=false")
	s.waitReady()
	return s, state
}

// fakeKinds are the kinds of objects in the fake driver, numbered from 1 as in driver/fake.h.
var fakeKinds = strings.Fields("allocation host managed async stream event context opened handle reservation mapping registered")

// fakeState returns the fake driver's counts of calls and of live objects. They are empty with a
// real driver.
func fakeState(t *testing.T, path string) (counts, live map[string]int) {
	t.Helper()
	read := fakecuda.ReadCounts(t, path)
	counts, live = map[string]int{}, map[string]int{}
	for name, n := range read.Calls {
		counts[name] = int(n)
	}
	for i, kind := range fakeKinds {
		live[kind] = read.Live(i + 1)
	}
	return counts, live
}

// doubled sends a model the values 0, 1, 2 … and expects them multiplied by factor.
func (s *runningServer) doubled(model string, n, factor int) {
	s.t.Helper()
	values := func(factor int) (data []byte) {
		for i := range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i%1000*factor)))
		}
		return data
	}
	head := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, n, 4*n)
	status, body, err := s.try("POST", "/v2/models/"+model+"/infer", map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(head))},
		append([]byte(head), values(1)...))
	if err != nil || status != http.StatusOK || len(body) < 4*n {
		s.t.Fatalf("%s: got status %d, error %v (%.300s)", model, status, err, body)
	}
	got, want := body[len(body)-4*n:], values(factor)
	for i := range n {
		if got[4*i:4*i+4] != string(want[4*i:4*i+4]) {
			s.t.Fatalf("%s: value %d is %x, want %x", model, i, got[4*i:4*i+4], want[4*i:4*i+4])
		}
	}
}

// TestTensorsStayOnDevices checks that BLS requests pass device tensors between models without
// copies through the host.
func TestTensorsStayOnDevices(t *testing.T) {
	testkit.Story(t)
	for _, n := range []int{4, 1 << 18} {
		t.Run(fmt.Sprint(n, " elements"), func(t *testing.T) {
			s, state := onDeviceServer(t)
			for range 3 {
				s.doubled("caller", n, 2)
			}
			counts, _ := fakeState(t, state)
			// One copy to the host is the doubler's own, for its computation, and one is that of
			// the response to the client. No other process may copy anything to the host.
			if got := counts["cuMemcpyDtoH_v2"]; got != 6 && !realDevice() {
				t.Errorf("%d copies to the host for three requests, want 6", got)
			}
			if got := counts["cuMemcpyDtoD_v2"]; got != 6 && !realDevice() {
				t.Errorf("%d copies on the device for three requests, want 6: there and back", got)
			}
			s.doubled("prefers", n, 2)
			s.doubled("again", n, 4)
			s.doubled("echo", n, 1)
			s.doubled("chain", n, 8)
			s.doubled("mixed", n, 2)
			// Lent memory must come back: the models' pools must not grow.
			_, before := fakeState(t, state)
			for range 100 {
				s.doubled("caller", n, 2)
			}
			if _, after := fakeState(t, state); after["allocation"] > before["allocation"] || after["opened"] > before["opened"] {
				t.Errorf("before 100 requests %d allocations lived, and %d were open elsewhere, and then %d and %d",
					before["allocation"], before["opened"], after["allocation"], after["opened"])
			}
			s.notLeaking(state)
		})
	}
}

// notLeaking checks that the fake driver has found no mistakes and no stub has broken the protocol.
func (s *runningServer) notLeaking(state string) {
	s.t.Helper()
	counts, _ := fakeState(s.t, state)
	for _, mistake := range []string{"double_free", "double_close", "wrong_context", "without_context", "out_of_bounds", "after_fork"} {
		if counts[mistake] != 0 {
			s.t.Errorf("%s: %d times", mistake, counts[mistake])
		}
	}
	if page := s.scrape(); strings.Contains(page, "nereid_stub_protocol_errors_total{") {
		s.t.Errorf("a stub has broken the protocol:\n%s", page)
	}
}

// nothingLeft waits until the models have all their tickets back, and until all live allocations
// are pools that the models report. Then no process holds borrowed memory that its owner has
// forgotten. Each pool of these tests has one allocation of 32 MiB.
func (s *runningServer) nothingLeft(state string, models ...string) {
	s.t.Helper()
	for _, model := range models {
		s.until("free of tickets of "+model, func() bool {
			status, body := s.request("POST", "/v2/models/"+model+"/infer", `{"id":"lent","inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
			return status == http.StatusOK && strings.Contains(body, `"data":[0.0]`)
		})
	}
	lent := regexp.MustCompile(`(?m)^nereid_device_lent_bytes\{.*\} (\S+)$`)
	s.until("free of allocations", func() bool {
		if realDevice() {
			return true
		}
		_, live := fakeState(s.t, state)
		bytes := 0.
		for _, match := range lent.FindAllStringSubmatch(s.scrape(), -1) {
			value, err := strconv.ParseFloat(match[1], 64)
			if err != nil {
				s.t.Fatal(err)
			}
			bytes += value
		}
		return live["allocation"] == int(bytes)>>25
	})
	s.notLeaking(state)
}

// TestTensorsOfModelsThatDie kills the owner of device tensors. Tensors that are already open must
// stay readable, reads of others must fail, and the model must be restarted.
func TestTensorsOfModelsThatDie(t *testing.T) {
	s, state := onDeviceServer(t)
	s.doubled("widow", 5000, 1)
	s.doubled("caller", 5000, 2)
	s.until("having mortal back", func() bool {
		status, _ := s.request("GET", "/v2/models/mortal/ready", "")
		return status == http.StatusOK
	})
	s.doubled("widow", 5000, 1)
	s.nothingLeft(state, "widow", "mortal", "caller", "doubler")
}

// TestTheCopierOfDevicesDies checks that the next copy starts a new copier after the copier was
// killed.
func TestTheCopierOfDevicesDies(t *testing.T) {
	s, state := onDeviceServer(t)
	s.doubled("mixed", 5000, 2)
	helpers := s.deviceHelpers()
	if len(helpers) != 1 {
		t.Fatalf("got helpers %v, want the one that copies", helpers)
	}
	if err := unix.Kill(helpers[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("copying again", func() bool {
		// After a restart, the process knows nothing about other models.
		status, body := s.request("POST", "/v2/repository/models/mixed/load", "")
		return status == http.StatusOK || strings.Contains(body, "explicit")
	})
	s.doubled("mixed", 5000, 2)
	s.notLeaking(state)
}

// TestMakersAndReadersKilledUnderLoad kills the stubs of lenders and holders of device tensors
// under load. Each request must get a reply, and everything must work afterwards.
func TestMakersAndReadersKilledUnderLoad(t *testing.T) {
	s, state := onDeviceServer(t)
	s.doubled("caller", 5000, 2)
	s.doubled("chain", 5000, 8)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for _, model := range []string{"caller", "again", "echo", "chain", "prefers"} {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// Any reply is acceptable while stubs are being killed.
				s.request("POST", "/v2/models/"+model+"/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[2000],"data":[`+strings.Repeat("1,", 1999)+`1]}]}`)
			}
		})
	}
	for i := range 12 {
		model := []string{"doubler", "caller", "returns", "echo"}[i%4]
		var pids []int
		s.until("finding "+model, func() bool { pids = s.stubsOf(model); return len(pids) > 0 })
		_ = unix.Kill(pids[0], unix.SIGKILL)
		s.until("having another "+model, func() bool { now := s.stubsOf(model); return len(now) > 0 && now[0] != pids[0] })
	}
	close(stop)
	wait.Wait()
	for model, factor := range map[string]int{"caller": 2, "again": 4, "echo": 1, "chain": 8, "prefers": 2} {
		s.until("having "+model+" back", func() bool {
			status, _ := s.request("POST", "/v2/models/"+model+"/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
			return status == http.StatusOK
		})
		s.doubled(model, 5000, factor)
	}
	s.until("showing what the caller lends", func() bool {
		return strings.Contains(s.scrape(), `nereid_device_lent_bytes{model="caller",version="1"} 33554432`)
	})
	s.nothingLeft(state, "caller", "again", "echo", "prefers", "doubler", "returns")
}

// TestDeviceThatIsLost loses the first of two devices for all processes. Requests that need it must
// get the driver's error, and others must succeed. No instance may be restarted, and nothing may
// stay lent.
func TestDeviceThatIsLost(t *testing.T) {
	standInAlone(t, "no test loses a real device")
	s, state := onDeviceServer(t)
	all := map[string]int{"mixed": 2, "caller": 2, "prefers": 2, "chain": 8, "again": 4, "echo": 1}
	for model, factor := range all {
		s.doubled(model, 5000, factor)
	}
	pids := map[string][]int{}
	for model := range all {
		pids[model] = s.stubsOf(model)
	}
	lost := state + ".lost"
	if err := os.WriteFile(lost+".new", []byte("719 0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(lost+".new", lost); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, model := range []string{"mixed", "prefers", "echo"} {
			status, body := s.request("POST", "/v2/models/"+model+"/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
			if status != http.StatusInternalServerError || !strings.Contains(body, "719") && !strings.Contains(body, "unspecified launch failure") {
				t.Errorf("%s: got status %d: %.300s", model, status, body)
			}
		}
		s.doubled("caller", 5000, 2) // runs entirely on the second device
	}
	if err := os.Remove(lost); err != nil { // a real device does not come back
		t.Fatal(err)
	}
	for model, factor := range all {
		s.doubled(model, 5000, factor)
		if now := s.stubsOf(model); !slices.Equal(now, pids[model]) {
			t.Errorf("%s was restarted: its processes were %v and are %v", model, pids[model], now)
		}
	}
	s.nothingLeft(state, "mixed", "caller", "prefers", "again", "echo", "doubler", "returns")
}
