package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// plusOne returns its input plus one in a new array, so that its output needs separate memory.
const plusOne = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", pb_utils.get_input_tensor_by_name(r, "INPUT").as_numpy() + 1)])
            for r in requests
        ]
`

const plusOneConfig = `
backend: "python"
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
`

func plusOneModel(t *testing.T) string {
	return writeFiles(t, map[string]string{"plus/config.pbtxt": plusOneConfig, "plus/1/model.py": plusOne})
}

// binaryBody returns a request with size zeros and its headers.
func binaryBody(size int) (body []byte, header map[string]string) {
	head := fmt.Sprintf(`{"inputs":[{"name":"INPUT","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],"outputs":[{"name":"OUTPUT","parameters":{"binary_data":true}}]}`, size, size)
	return append([]byte(head), make([]byte, size)...), map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(head))}
}

// jsonBody returns a JSON request of about size bytes.
func jsonBody(size int) []byte {
	n := size / 2
	return fmt.Appendf(nil, `{"inputs":[{"name":"INPUT","datatype":"UINT8","shape":[%d],"data":[%s0]}],"outputs":[{"name":"OUTPUT","parameters":{"binary_data":true}}]}`,
		n, strings.Repeat("0,", n-1))
}

// figure returns the value of a metric, which must exist.
func (s *runningServer) figure(name string) float64 {
	s.t.Helper()
	value, ok := s.figureOf(name)
	if !ok {
		s.t.Fatalf("there is no metric %s", name)
	}
	return value
}

// figureOf returns the value of a metric and whether it exists.
func (s *runningServer) figureOf(name string) (value float64, ok bool) {
	s.t.Helper()
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.metrics))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if match == nil {
		return 0, false
	}
	if value, err = strconv.ParseFloat(string(match[1]), 64); err != nil {
		s.t.Fatal(err)
	}
	return value, true
}

// taken returns the total of the server's memory account.
func (s *runningServer) taken() float64 {
	sum := 0.0
	for _, kind := range []string{"bodies", "json", "decompression", "replies", "connections", "transport", "states", "blocks", "stacked", "padding", "arenas", "released"} {
		sum += s.figure(fmt.Sprintf(`nereid_memory_bytes{kind=%q}`, kind))
	}
	return sum
}

// memoryGroup is a control group with a memory limit.
type memoryGroup struct {
	dir string
	v2  bool
}

// newMemoryGroup creates a control group, or skips the test if this machine does not allow it.
func newMemoryGroup(t *testing.T, limit int64) *memoryGroup {
	t.Helper()
	root, file, v2 := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", false
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file, v2 = "/sys/fs/cgroup", "memory.max", true
	}
	dir, err := os.MkdirTemp(root, "nereid-test-")
	if err != nil {
		t.Skipf("a control group is needed: %v", err)
	}
	g := &memoryGroup{dir, v2}
	t.Cleanup(func() {
		testkit.Eventually(t, startLimit, func() bool {
			err := os.Remove(dir)
			return err == nil || os.IsNotExist(err)
		})
	})
	if err := os.WriteFile(filepath.Join(dir, file), strconv.AppendInt(nil, limit, 10), 0o644); err != nil {
		t.Skipf("a control group with a limit of memory is needed: %v", err)
	}
	if !v2 { // with swap, the kernel would not kill
		_ = os.WriteFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), strconv.AppendInt(nil, limit, 10), 0o644)
	}
	return g
}

// kills returns how many processes the kernel has killed because of a lack of memory.
func (g *memoryGroup) kills(t *testing.T) int {
	t.Helper()
	name := "memory.oom_control"
	if g.v2 {
		name = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^oom_kill (\d+)$`).FindSubmatch(text)
	if match == nil {
		t.Skipf("%s does not count what the kernel kills", name)
	}
	n, _ := strconv.Atoi(string(match[1]))
	return n
}

// startInGroup starts a server without the race detector in a control group.
func startInGroup(t *testing.T, g *memoryGroup, repository string, flags ...string) *runningServer {
	t.Helper()
	plain, err := buildPlainServer()
	if err != nil {
		t.Fatal(err)
	}
	// The server without the race detector replaces the binary in launchBehind's command line.
	const script = `echo $$ > "$0" && plain=$1 && shift 2 && exec "$plain" "$@"`
	enter := []string{"/bin/sh", "-c", script, filepath.Join(g.dir, "cgroup.procs"), plain}
	s := launchBehind(t, enter, testkit.Python(t).Path, repository, flags...)
	s.waitReady()
	return s
}

// TestLargeBodiesInASmallGroup sends more bodies at once than fit into the memory of the server's
// control group. Clients must get 200 or 503, and the kernel must not kill a process.
func TestLargeBodiesInASmallGroup(t *testing.T) {
	testkit.Story(t)
	group := newMemoryGroup(t, 700<<20)
	s := startInGroup(t, group, plusOneModel(t))
	if limit := s.figure("nereid_memory_limit_bytes"); limit != 350<<20 {
		t.Errorf("the account has %.0f bytes, want half of the group's", limit)
	}
	const size = 48 << 20
	binary, header := binaryBody(size)
	text := jsonBody(size)
	statuses := make(map[int]int)
	// The server reads a rejected body to its end only on keep-alive connections.
	kept := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 2 * startLimit}
	defer kept.CloseIdleConnections()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for round := range 2 {
				body, header := binary, header
				if (i+round)%2 == 1 {
					body, header = text, nil
				}
				status, reply, err := s.tryBy(kept, "POST", "/v2/models/plus/infer", header, body)
				if err != nil {
					t.Error(err)
					continue
				}
				if status == http.StatusOK && strings.Count(reply, "\x01") < len(body)/2-1000 {
					t.Errorf("a wrong answer of %d bytes", len(reply))
				}
				if status != http.StatusOK && status != http.StatusServiceUnavailable {
					t.Errorf("status %d, want 200 or 503 alone: %.300s", status, reply)
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("statuses: %v", statuses)
	if n := group.kills(t); n > 0 {
		t.Errorf("the kernel has killed %d processes", n)
	}
	if statuses[http.StatusOK] == 0 {
		t.Error("nothing was answered with 200")
	}
	s.until("rid of what clients took", func() bool { return s.taken() < 2<<20 })
}

// eats allocates memory until it is killed.
const eats = `
class TritonPythonModel:
    def execute(self, requests):
        kept = []
        while True:
            kept.append(b"x" * (1 << 20))
`

// TestTheServerOutlivesModelsThatFillItsGroup lets two processes of a model fill the control group
// while the server, with its response cache, is the largest process in it. The kernel must kill the
// processes of the model.
func TestTheServerOutlivesModelsThatFillItsGroup(t *testing.T) {
	group := newMemoryGroup(t, 500<<20)
	s := startInGroup(t, group, writeFiles(t, map[string]string{
		"plus/config.pbtxt": plusOneConfig + "response_cache { enable: true }\n", "plus/1/model.py": plusOne,
		"eats/config.pbtxt": plusOneConfig, "eats/1/model.py": eats,
	}), "--cache-config=local,size=209715200")
	body, header := binaryBody(40 << 20)
	cached := func() {
		t.Helper()
		for i := range 4 {
			body[len(body)-1] = byte(i)
			if status, reply, err := s.try("POST", "/v2/models/plus/infer", header, body); err != nil || status != http.StatusOK || reply[len(reply)-1] != byte(i+1) {
				t.Fatalf("request %d: status %d, %v", i, status, err)
			}
		}
	}
	cached()
	if got := s.figure(`nereid_memory_bytes{kind="cache"}`); got < 160<<20 {
		t.Fatalf("the cache has %.0f bytes, want those of four responses", got)
	}
	small, header := binaryBody(1)
	var eaters sync.WaitGroup
	for range 2 {
		eaters.Go(func() {
			if status, _, err := s.try("POST", "/v2/models/eats/infer", header, small); err != nil || status == http.StatusOK {
				t.Errorf("a request of a killed process: status %d, %v", status, err)
			}
		})
	}
	eaters.Wait()
	if group.kills(t) == 0 {
		t.Error("the kernel has killed nothing")
	}
	body, header = binaryBody(40 << 20)
	cached()
}

// resident returns the resident memory of the server process in bytes, without its children.
func (s *runningServer) resident() int {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"RssAnon", "RssShmem"} {
		match := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
		if match == nil {
			s.t.Fatalf("/proc has no %s:\n%s", name, text)
		}
		kib, _ := strconv.Atoi(string(match[1]))
		sum += kib << 10
	}
	return sum
}

// TestBombsLeaveNothing sends compressed bodies that expand to almost the limit. Afterwards the
// server must be as small as before.
func TestBombsLeaveNothing(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, plusOneModel(t))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(jsonBody(63 << 20))
	_ = z.Close()
	bomb := func() {
		status, _, err := s.try("POST", "/v2/models/plus/infer", map[string]string{"Content-Encoding": "gzip"}, packed.Bytes())
		if err != nil || status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Errorf("status %d, %v", status, err)
		}
	}
	before := s.resident()
	var all sync.WaitGroup
	for range 2 {
		all.Go(bomb)
	}
	all.Wait()
	const most = 48 << 20
	s.until("as small as before", func() bool { return s.resident() < before+most && s.taken() < 2<<20 })
}

// TestAnnouncedBodiesLeaveMemoryToOthers opens 100 connections that announce a body of half the
// memory limit and send 675 bytes. Other clients must still be able to send large bodies.
func TestAnnouncedBodiesLeaveMemoryToOthers(t *testing.T) {
	s := start(t, testkit.Python(t).Path, plusOneModel(t), "--request-memory-byte-size=268435456")
	const announced = 128 << 20
	head := fmt.Sprintf(`{"inputs":[{"name":"INPUT","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}`, announced, announced)
	for range 100 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.http))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "POST /v2/models/plus/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s%s",
			len(head), len(head)+announced, head, strings.Repeat("x", 675-len(head))); err != nil {
			t.Fatal(err)
		}
	}
	s.until("reading what was announced", func() bool { return s.taken() > 99*64<<10 })
	if taken := s.taken(); taken > 268435456/8+100*256<<10 { // an eighth may be reserved in advance
		t.Errorf("%.0f bytes are taken for what was announced", taken)
	}
	body, header := binaryBody(48 << 20)
	for range 3 {
		if status, reply, err := s.try("POST", "/v2/models/plus/infer", header, body); err != nil || status != http.StatusOK {
			t.Errorf("beside them: status %d, %.200s, %v", status, reply, err)
		}
	}
}

// TestOutputsAreOnTheAccount checks that memory for outputs is charged until the stub returns it.
// An output larger than the limit must get 500, an output larger than the remaining memory 503, and
// other requests must succeed.
func TestOutputsAreOnTheAccount(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"large/config.pbtxt": `
backend: "python"
max_batch_size: 4
input [ { name: "MIB" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
`,
		"large/1/model.py": `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(pb_utils.get_input_tensor_by_name(r, "MIB").as_numpy()[0, 0]) << 20 for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.full((1, n), 7, np.uint8))]) for n in sizes]
`,
	}), "--request-memory-byte-size=67108864", "--model-max-memory-share=100")
	ask := func(mib int) (int, string) {
		status, reply, err := s.try("POST", "/v2/models/large/infer", nil, fmt.Appendf(nil,
			`{"inputs":[{"name":"MIB","datatype":"INT32","shape":[1,1],"data":[%d]}],"outputs":[{"name":"OUTPUT","parameters":{"binary_data":true}}]}`, mib))
		if err != nil {
			t.Fatal(err)
		}
		return status, reply
	}
	for range 2 {
		s.until("charging an output of 8 MiB", func() bool {
			if status, reply := ask(8); status != http.StatusOK || strings.Count(reply, "\x07") != 8<<20 {
				t.Fatalf("8 MiB: status %d with %d bytes", status, len(reply))
			}
			charged := s.figure(`nereid_memory_bytes{kind="arenas"}`) // 0 again a second after the answer
			if charged > 12<<20 {
				t.Fatalf("%.0f bytes are charged for an output of 8 MiB", charged)
			}
			return charged >= 7<<20
		})
		if status, reply := ask(60); status != http.StatusInternalServerError || !strings.Contains(reply, "Failed to increase the shared memory pool size") {
			t.Errorf("60 MiB, which are never to be had: status %d, %.300q, want 500", status, reply)
		}
		// Another client's body, which never ends, takes most of the memory.
		const begun, sent = 36 << 20, 34 << 20
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.http))
		if err != nil {
			t.Fatal(err)
		}
		head := fmt.Sprintf(`{"inputs":[{"name":"MIB","datatype":"INT32","shape":[%d,1],"parameters":{"binary_data_size":%d}}]}`, begun/4, begun)
		_, err = fmt.Fprintf(c, "POST /v2/models/large/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s%s",
			len(head), len(head)+begun, head, make([]byte, sent))
		if err != nil {
			t.Fatal(err)
		}
		s.until("reading that body", func() bool { return s.figure(`nereid_memory_bytes{kind="blocks"}`) >= sent })
		const want = "is used up (--request-memory-byte-size)"
		if status, reply := ask(30); status != http.StatusServiceUnavailable || !strings.Contains(reply, want) {
			t.Errorf("30 MiB beside a large body: status %d, %.500q, want 503 and %q", status, reply, want)
		}
		if status, _ := ask(1); status != http.StatusOK {
			t.Errorf("1 MiB beside it: status %d, want 200", status)
		}
		_ = c.Close()
		s.until("rid of that body", func() bool { return s.figure(`nereid_memory_bytes{kind="blocks"}`) < 1<<20 })
		if status, reply := ask(30); status != http.StatusOK || strings.Count(reply, "\x07") != 30<<20 {
			t.Errorf("30 MiB after it: status %d with %d bytes: %.200q", status, len(reply), reply)
		}
		s.until("rid of the outputs", func() bool { return s.figure(`nereid_memory_bytes{kind="arenas"}`) == 0 })
	}
}

// TestPaddingIsNotMultiplied sends a large request to the last of 64 slots while the others are
// empty. The padding must need as much memory as the request, not 63 times as much.
func TestPaddingIsNotMultiplied(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"slots/config.pbtxt": `
backend: "python"
max_batch_size: 64
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT64 dims: [ 1 ] } ]
sequence_batching { direct { } max_sequence_idle_microseconds: 60000000 }
instance_group [ { count: 1 kind: KIND_CPU } ]
`,
		"slots/1/model.py": `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(r, "INPUT").as_numpy() for r in requests]
        same = all(i.size == inputs[0].size for i in inputs)
        sums = [int(i.sum()) for i in inputs]
        others = sum(sums) - sums[-1]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[len(inputs) if same and not others else -1]]))]) for _ in inputs]
`,
	}), "--request-memory-byte-size=67108864")
	ask := func(sequence, size int, start bool) (int, string) {
		head := fmt.Sprintf(`{"inputs":[{"name":"INPUT","datatype":"UINT8","shape":[1,%d],"parameters":{"binary_data_size":%d}}],"parameters":{"sequence_id":%d,"sequence_start":%t}}`,
			size, size, sequence, start)
		status, reply, err := s.try("POST", "/v2/models/slots/infer", map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(head))},
			append([]byte(head), bytes.Repeat([]byte{1}, size)...))
		if err != nil {
			t.Fatal(err)
		}
		return status, reply
	}
	for sequence := 1; sequence <= 64; sequence++ {
		if status, reply := ask(sequence, 1, true); status != http.StatusOK {
			t.Fatalf("sequence %d: status %d, %s", sequence, status, reply)
		}
	}
	for range 2 {
		if status, reply := ask(64, 8<<20, false); status != http.StatusOK || !strings.Contains(reply, `"data":[64]`) {
			t.Errorf("8 MiB in the last slot: status %d, %.300s", status, reply)
		}
	}
	s.until("rid of the padding", func() bool { return s.figure(`nereid_memory_bytes{kind="padding"}`) == 0 })
}
