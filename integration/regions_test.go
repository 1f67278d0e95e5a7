package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// heldModel returns its input. A request with an id waits for a file.
const heldModel = `
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.directory = %q

    def execute(self, requests):
        responses = []
        for request in requests:
            if request.request_id():
                path = os.path.join(self.directory, request.request_id())
                open(path + ".begun", "w").close()
                while not os.path.exists(path + ".over"):
                    time.sleep(0.002)
            data = request.inputs()[0].as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", data)]))
        return responses
`

// repeatModel responds three times with multiples of its input.
const repeatModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            data, sender = request.inputs()[0].as_numpy(), request.get_response_sender()
            for k in (1, 2, 3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", data * k)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// regionsRepository creates the models of testdata/regions.py. They synchronize with their clients
// through files in marks.
func regionsRepository(t *testing.T, marks string) string {
	const tensors = "input [ { name: \"INPUT\" data_type: TYPE_%[1]s dims: [ -1 ] } ]\noutput [ { name: \"OUTPUT\" data_type: TYPE_%[1]s dims: [ -1 ] } ]\n"
	numbers, identity := "backend: \"python\"\n"+fmt.Sprintf(tensors, "FP32"), strings.ReplaceAll(heldModel, "%q", `""`)
	return writeFiles(t, map[string]string{
		"numbers/config.pbtxt": numbers,
		"numbers/1/model.py":   identity,
		"cached/config.pbtxt":  numbers + "response_cache { enable: true }\n",
		"cached/1/model.py":    identity,
		"batched/config.pbtxt": numbers + "dynamic_batching { max_queue_delay_microseconds: 100 }\n",
		"batched/1/model.py":   identity,
		"texts/config.pbtxt":   "backend: \"python\"\n" + fmt.Sprintf(tensors, "STRING"),
		"texts/1/model.py":     identity,
		"hold/config.pbtxt":    numbers + "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
		"hold/1/model.py":      fmt.Sprintf(heldModel, marks),
		"repeat/config.pbtxt":  numbers + "model_transaction_policy { decoupled: true }\n",
		"repeat/1/model.py":    repeatModel,
		"chain/1/empty":        "",
		"chain/config.pbtxt": "platform: \"ensemble\"\n" + fmt.Sprintf(tensors, "FP32") + `ensemble_scheduling { step [
	{ model_name: "numbers" model_version: -1 input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "between" } },
	{ model_name: "cached" model_version: -1 input_map { key: "INPUT" value: "between" } output_map { key: "OUTPUT" value: "OUTPUT" } } ] }
`,
	})
}

// regionsPrefix returns the prefix of the region keys of one test. Regions that are left over are
// removed after the test, and another check makes the test fail.
func regionsPrefix(t *testing.T) string {
	t.Helper()
	prefix := fmt.Sprintf("nereid-regions-%d-%s-", os.Getpid(), strings.ToLower(t.Name()))
	return strings.ReplaceAll(prefix, "/", "-")
}

// TestClientsShareMemory checks that real clients can register shared memory and exchange tensors
// there, even if they tamper with it during requests. No region may be left.
func TestClientsShareMemory(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			marks := t.TempDir()
			s := start(t, python.Path, regionsRepository(t, marks), "--allow-client-shm=true", "--cache-config=local,size=16777216")
			open := s.descriptors()
			s.runClient("regions.py", regionsPrefix(t), marks)
			s.until("rid of all regions", func() bool {
				return s.figure("nereid_client_regions") == 0 && s.figure("nereid_client_region_bytes") == 0
			})
			s.until("rid of its descriptors", func() bool { return s.descriptors() <= open })
		})
	}
}

// descriptors counts the server's descriptors of files in /dev/shm.
func (s *runningServer) descriptors() (n int) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasPrefix(to, "/dev/shm/") {
			n++
		}
	}
	return n
}

// TestFailedRegistrationsLeaveNothing checks that 2,000 failed registrations leave no descriptors
// and no mappings.
func TestFailedRegistrationsLeaveNothing(t *testing.T) {
	s := start(t, "", writeFiles(t, map[string]string{"empty/.keep": ""}), "--allow-client-shm=true", "--exit-on-error=false")
	file, err := os.CreateTemp("/dev/shm", regionsPrefix(t))
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := file.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	key := filepath.Base(file.Name())
	for i := range 2000 {
		body := fmt.Sprintf(`{"key":%q,"byte_size":%d,"offset":%d}`, key, 8193-i%3*4096, i%3)
		status, text, err := s.try("POST", "/v2/systemsharedmemory/region/r/register", nil, []byte(body))
		if err != nil || status == http.StatusOK {
			t.Fatalf("registration %d: status %d, %s, %v: want an error", i, status, text, err)
		}
	}
	if n := s.descriptors(); n != 0 {
		t.Errorf("the server has %d descriptors of shared memory, want none", n)
	}
	if maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.cmd.Process.Pid)); err != nil || strings.Contains(string(maps), key) {
		t.Errorf("the server has the file mapped (%v)", err)
	}
}

// TestClientSharedMemoryIsOffByDefault checks that clients cannot register regions without
// --allow-client-shm.
func TestClientSharedMemoryIsOffByDefault(t *testing.T) {
	s := start(t, testkit.Pythons(t)[0].Path, regionsRepository(t, t.TempDir()))
	const off = `{"error":"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."}`
	for _, path := range []string{"systemsharedmemory/region/r/register", "systemsharedmemory/unregister", "cudasharedmemory/region/r/register", "cudasharedmemory/region/r/unregister"} {
		if status, body := s.request("POST", "/v2/"+path, "{}"); status != http.StatusNotImplemented || body != off {
			t.Errorf("%s: got %d %s, want 501 %s", path, status, body, off)
		}
	}
	if status, body := s.request("GET", "/v2/systemsharedmemory/status", ""); status != http.StatusOK || body != "[]" {
		t.Errorf("status: got %d %s, want 200 []", status, body)
	}
}

// TestPerfAnalyzerOfTritonIsServed checks that Triton's perf_analyzer can use the server with
// tensors in shared memory.
func TestPerfAnalyzerOfTritonIsServed(t *testing.T) {
	tool := filepath.Join(yardstick(t), "perf_analyzer")
	s := start(t, testkit.Pythons(t)[0].Path, regionsRepository(t, t.TempDir()), "--allow-client-shm=true")
	for protocol, port := range map[string]int{"http": s.http, "grpc": s.grpc} {
		for model, data := range map[string]string{"numbers": "random", "texts": "zero"} {
			output, err := exec.Command(tool, "-m", model, "-i", protocol, "-u", fmt.Sprintf("127.0.0.1:%d", port), "--shape", "INPUT:1000", "--input-data", data,
				"--shared-memory", "system", "--output-shared-memory-size", "262144", "--request-count", "300", "--concurrency-range", "2").CombinedOutput()
			if err != nil || !strings.Contains(string(output), "Concurrency: 2, throughput:") {
				t.Errorf("%s over %s: %v\n%s", model, protocol, err, output)
			}
		}
	}
	if n := s.figure("nereid_client_regions"); n != 0 {
		t.Errorf("%v regions are left, want none", n)
	}
}

// TestRegionsSameAsTriton checks that both servers send the same replies about regions and write
// the same contents into them.
func TestRegionsSameAsTriton(t *testing.T) {
	dir, repository := yardstick(t), regionsRepository(t, t.TempDir())
	numbers := writeFiles(t, map[string]string{"empty/1/.keep": ""})
	if err := errors.Join(os.RemoveAll(filepath.Join(numbers, "empty")), os.Rename(filepath.Join(repository, "numbers"), filepath.Join(numbers, "numbers"))); err != nil {
		t.Fatal(err)
	}
	transcript := func(s *runningServer) []string {
		t.Helper()
		output, err := exec.Command(clientPython(t), runScript, filepath.Join("testdata", "regions_transcript.py"), fmt.Sprintf("127.0.0.1:%d", s.http),
			fmt.Sprintf("127.0.0.1:%d", s.grpc), regionsPrefix(t)).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return strings.Split(string(output), "\n")
	}
	triton := startTriton(t, dir, numbers)
	triton.waitReady()
	want, got := transcript(triton), transcript(start(t, testkit.Pythons(t)[0].Path, numbers, "--allow-client-shm=true"))
	if len(want) < 100 {
		t.Errorf("Triton was asked %d things, want more than 100", len(want))
	}
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("line %d:\n got  %s\n want %s", i, got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
		}
	}
}
