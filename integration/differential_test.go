package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// yardstick returns the directory of a real Triton for "make differential". Other test runs skip
// these tests even if Triton is installed, because Triton's failures say nothing about this server.
func yardstick(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NEREID_YARDSTICK")
	if dir == "" {
		t.Skip("compared with a real Triton by \"make differential\" alone")
	}
	if _, err := os.Stat(filepath.Join(dir, "tritonserver")); err != nil {
		t.Skipf("no Triton to compare with: %v", err)
	}
	return dir
}

// startTriton starts a real Triton and waits until it is live.
func startTriton(t *testing.T, dir, repository string, flags ...string) *runningServer {
	t.Helper()
	ports := testkit.Ports(t, 3)
	s := &runningServer{t: t, rival: true, log: &testkit.Buffer{}, http: ports[0], grpc: ports[1], metrics: ports[2], ended: make(chan error, 1)}
	s.cmd = exec.Command(filepath.Join(dir, "tritonserver"), append([]string{
		"--model-repository=" + repository, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
		"--http-port=" + strconv.Itoa(s.http), "--grpc-port=" + strconv.Itoa(s.grpc), "--metrics-port=" + strconv.Itoa(s.metrics),
	}, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Triton printed:\n%s", s.log)
		}
		processes := append(s.descendants(), -s.cmd.Process.Pid)
		_ = s.cmd.Process.Signal(unix.SIGINT)
		select {
		case <-s.ended: //nolint:errcheck // Triton's exit status is not tested
		case <-time.After(startLimit):
		}
		for _, pid := range processes {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	// On a busy machine Triton sometimes hangs during startup, which says nothing about this
	// server.
	if !testkit.Within(startLimit, func() bool {
		status, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil && status == http.StatusOK
	}) {
		t.Skipf("Triton has not started within %s, so there is nothing to compare with", startLimit)
	}
	return s
}

// comparedHeaders are the headers that clients use.
var comparedHeaders = []string{"Content-Type", "Inference-Header-Content-Length", "Content-Encoding"}

// raw sends bytes unchanged and returns the reply as text.
func (s *runningServer) raw(request []byte) (string, error) {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", s.http), startLimit)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(startLimit))
	if _, err := c.Write(request); err != nil {
		return "", err
	}
	method, _, _ := bytes.Cut(request, []byte(" "))
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: string(method)})
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d\n", response.StatusCode)
	for _, name := range comparedHeaders {
		if value := response.Header.Get(name); value != "" {
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
	}
	text.WriteString(normalise(body))
	return text.String(), nil
}

var (
	nanoseconds = regexp.MustCompile(`"(ns|last_inference)":\d+`)
	memoryUsage = regexp.MustCompile(`"memory_usage":\[[^\]]*\]`)
	repeated    = regexp.MustCompile(`(  [^\\]*: f\\n)+`)
)

// normalise removes parts of a reply that differ between any two servers: times, recursion depths,
// and the memory of processes.
func normalise(body []byte) string {
	body = memoryUsage.ReplaceAll(body, []byte(`"memory_usage":[]`))
	body = nanoseconds.ReplaceAll(body, []byte(`"$1":N`))
	return string(repeated.ReplaceAll(body, []byte("$1")))
}

func httpRequest(method, path, headers, body string) []byte {
	head := method + " " + path + " HTTP/1.1\r\nHost: x\r\n"
	if headers != "" {
		head += headers + "\r\n"
	}
	if body != "" || method == "POST" {
		head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	return []byte(head + "\r\n" + body)
}

// binaryRequest returns the headers and the body of a request with binary inputs.
func binaryRequest(json, tail string) (headers, body string) {
	return "Inference-Header-Content-Length: " + strconv.Itoa(len(json)), json + tail
}

type exchange struct {
	name    string
	request []byte
}

func post(model, body string) []byte {
	return httpRequest("POST", "/v2/models/"+model+"/infer", "", body)
}

func binaryPost(model, json, tail string) []byte {
	headers, body := binaryRequest(json, tail)
	return httpRequest("POST", "/v2/models/"+model+"/infer", headers, body)
}

const (
	four = "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40" // 1, 2, 3, 4 as FP32
	fp32 = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}`
)

// comparable reports whether Triton survives a misbehaviour and sends a reply.
func comparable(m misbehaviour) bool {
	return m.want != "" && m.want != dead && !strings.HasPrefix(m.name, "returns_none")
}

func differentialRepository(t *testing.T) string {
	identity := identityModel
	tensors := func(dataType, dims string) string {
		return fmt.Sprintf(`
input [ { name: "INPUT0" data_type: %[1]s dims: [ %[2]s ] } ]
output [ { name: "OUTPUT0" data_type: %[1]s dims: [ %[2]s ] } ]
`, dataType, dims)
	}
	files := map[string]string{}
	add := func(name, config, model string) {
		files[name+"/config.pbtxt"] = "backend: \"python\"\n" + config
		files[name+"/1/model.py"] = model
	}
	for _, dataType := range dataTypes {
		add("id_"+strings.ToLower(dataType), tensors("TYPE_"+dataType, "-1"), identity)
	}
	add("fixed", tensors("TYPE_FP32", "2, 2"), identity)
	add("batch", "max_batch_size: 4\n"+tensors("TYPE_FP32", "2"), identity)
	add("reshape", "max_batch_size: 4\n"+`
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] reshape: { shape: [ ] } } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] reshape: { shape: [ ] } } ]
`, identity)
	add("labels", `
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
`, identity)
	files["labels/labels.txt"] = "cat\ndog\nfish\nbird\n"
	add("two", `
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "INPUT1" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 1 ] } ]
`, identity)
	add("versions", "version_policy: { all { } }\n"+tensors("TYPE_FP32", "4"), identity)
	files["versions/3/model.py"] = identity
	for _, m := range misbehaviours {
		if !comparable(m) {
			continue
		}
		add(m.name, strings.TrimPrefix(strings.TrimSpace(oneFloat), `backend: "python"`), m.model)
	}
	return writeFiles(t, files)
}

func httpExchanges() []exchange {
	var list []exchange
	add := func(name string, request []byte) { list = append(list, exchange{name, request}) }
	for _, path := range []string{
		"/v2/health/live", "/v2/health/ready", "/v2/models/fixed", "/v2/models/fixed/ready", "/v2/models/fixed/config",
		"/v2/models/fixed/versions/1", "/v2/models/fixed/versions/1/ready", "/v2/models/fixed/versions/1/config",
		"/v2/models/fixed/versions/2", "/v2/models/fixed/versions/x", "/v2/models/fixed/versions/0", "/v2/models/fixed/versions/-1",
		"/v2/models/none", "/v2/models/none/ready", "/v2/models/none/config", "/v2/models/none/stats", "/v2/models/none/versions/1",
		"/v2/models/batch", "/v2/models/batch/config", "/v2/models/labels", "/v2/models/labels/config", "/v2/models/two", "/v2/models/two/config",
		"/v2/models/reshape", "/v2/models/reshape/config", "/v2/models/versions", "/v2/models/versions/config", "/v2/models/versions/versions/3",
		"/v2/models/id_string", "/v2/models/id_string/config", "/v2/models/fixed/infer", "/v2", "/", "/v2/", "/v2/nothing", "/v2/models", "/v2/models/",
		"/v2/models/stats", "/v2/models/fixed/stats", "/v2/models/versions/stats", "/v2/repository/index", "/v2/logging",
	} {
		add("GET "+path, httpRequest("GET", path, "", ""))
	}
	for _, path := range []string{"/v2/health/live", "/v2/models/fixed/config", "/v2/repository/index", "/v2/models/fixed/ready"} {
		add("POST "+path, httpRequest("POST", path, "", ""))
	}
	add("index of what is ready", httpRequest("POST", "/v2/repository/index", "", `{"ready":true}`))
	add("load", httpRequest("POST", "/v2/repository/models/fixed/load", "", ""))
	add("unload", httpRequest("POST", "/v2/repository/models/fixed/unload", "", ""))

	// These are valid requests of each type.
	for dataType, data := range map[string]string{
		"bool": "[true,false,true]", "int8": "[-128,0,127]", "int16": "[-32768,0,32767]", "int32": "[-2147483648,0,2147483647]",
		"int64": "[-9223372036854775808,0,9223372036854775807]", "uint8": "[0,1,255]", "uint16": "[0,1,65535]", "uint32": "[0,1,4294967295]",
		"uint64": "[0,1,18446744073709551615]", "fp32": "[0.1,-1e10,3]", "fp64": "[0.1,-1e300,3]", "string": `["","a\"b","\u00e4"]`,
	} {
		name := strings.ToUpper(dataType)
		if dataType == "string" {
			name = "BYTES"
		}
		add("json "+dataType, post("id_"+dataType, `{"inputs":[{"name":"INPUT0","datatype":"`+name+`","shape":[3],"data":`+data+`}]}`))
	}
	add("json nested", post("fixed", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,2],"data":[[1,2],[3,4]]}]}`))
	add("json flat", post("fixed", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}]}`))
	add("empty", post("id_fp32", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[0],"data":[]}]}`))
	add("id", post("id_fp32", `{"id":"x\"y","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`))
	add("parameters", post("id_fp32", `{"parameters":{"a":1,"b":"c","d":true,"e":1.5},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`))
	add("version", httpRequest("POST", "/v2/models/versions/versions/1/infer", "", fp32))
	add("latest version", post("versions", fp32))
	add("missing version", httpRequest("POST", "/v2/models/versions/versions/2/infer", "", fp32))
	add("unknown model", post("none", fp32))
	add("batched", post("batch", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}]}`))
	add("batch too large", post("batch", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[5,2],"data":[1,2,3,4,5,6,7,8,9,10]}]}`))
	add("batch without dimension", post("batch", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}`))
	add("batch of none", post("batch", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[0,2],"data":[]}]}`))
	add("reshape", post("reshape", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,1],"data":[1,2]}]}`))
	add("optional left out", post("two", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}`))
	add("both", post("two", `{"inputs":[{"name":"INPUT1","datatype":"INT32","shape":[1],"data":[1]},{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[2]}]}`))
	add("required left out", post("two", `{"inputs":[{"name":"INPUT1","datatype":"INT32","shape":[1],"data":[1]}]}`))
	add("wanted output", post("two", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]},{"name":"INPUT1","datatype":"INT32","shape":[1],"data":[2]}],"outputs":[{"name":"OUTPUT1"}]}`))
	add("unknown output", post("two", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}],"outputs":[{"name":"OTHER"}]}`))

	// These are invalid requests.
	for name, body := range map[string]string{
		"no body": "", "no json": "{", "array": "[]", "null": "null", "no inputs": "{}", "inputs null": `{"inputs":null}`, "inputs empty": `{"inputs":[]}`,
		"inputs object": `{"inputs":{}}`, "input text": `{"inputs":["x"]}`, "no name": `{"inputs":[{"datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}`,
		"no datatype":           `{"inputs":[{"name":"INPUT0","shape":[4],"data":[1,2,3,4]}]}`,
		"no shape":              `{"inputs":[{"name":"INPUT0","datatype":"FP32","data":[1,2,3,4]}]}`,
		"no data":               `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4]}]}`,
		"unknown datatype":      `{"inputs":[{"name":"INPUT0","datatype":"FP99","shape":[4],"data":[1,2,3,4]}]}`,
		"other datatype":        `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[4],"data":[1,2,3,4]}]}`,
		"too few":               `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[1,2,3]}]}`,
		"too many":              `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[1,2,3,4,5]}]}`,
		"text among numbers":    `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[1,2,3,"x"]}]}`,
		"negative shape":        `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1],"data":[1]}]}`,
		"text shape":            `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":["4"],"data":[1,2,3,4]}]}`,
		"huge shape":            `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4611686018427387904,8],"data":[1]}]}`,
		"wrong rank":            `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`,
		"scalar shape":          `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[],"data":[1]}]}`,
		"unknown input":         `{"inputs":[{"name":"OTHER","datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}`,
		"input twice":           `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]},{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"outputs object":        `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":{}}`,
		"output without name":   `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{}]}`,
		"id number":             `{"id":7,"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"binary without header": `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"parameters":{"binary_data_size":16}}]}` + four,
		"timeout text":          `{"parameters":{"timeout":"x"},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"parameter object":      `{"parameters":{"a":{}},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"parameters text":       `{"parameters":"a","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"sequence":              `{"parameters":{"sequence_id":3,"sequence_start":true},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"triton_ parameter":     `{"parameters":{"triton_x":3},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`,
	} {
		add("bad: "+name, post("id_fp32", body))
	}

	// These requests use the binary extension.
	in := func(size int) string {
		return fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"parameters":{"binary_data_size":%d}}]}`, size)
	}
	add("binary in", binaryPost("id_fp32", in(16), four))
	add("binary too short", binaryPost("id_fp32", in(16), four[:12]))
	add("binary too long", binaryPost("id_fp32", in(16), four+"xxxx"))
	add("binary other size", binaryPost("id_fp32", in(12), four[:12]))
	add("binary negative size", binaryPost("id_fp32", in(-1), four))
	add("binary and data", binaryPost("id_fp32", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[4],"data":[9,9,9,9],"parameters":{"binary_data_size":16}}]}`, four))
	add("binary out", post("id_fp32", strings.TrimSuffix(fp32, "}")+`,"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`))
	add("binary output for all", post("id_fp32", strings.TrimSuffix(fp32, "}")+`,"parameters":{"binary_data_output":true}}`))
	add("binary both", binaryPost("id_fp32", strings.TrimSuffix(in(16), "}")+`,"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, four))
	add("binary strings", binaryPost("id_string", `{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":13}}]}`, "\x03\x00\x00\x00abc\x02\x00\x00\x00de"))
	add("binary strings cut", binaryPost("id_string", `{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":12}}]}`, "\x03\x00\x00\x00abc\x02\x00\x00\x00d"))
	add("binary strings too many", binaryPost("id_string", `{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":13}}]}`, "\x03\x00\x00\x00abc\x02\x00\x00\x00de"))
	add("binary strings too few", binaryPost("id_string", `{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[3],"parameters":{"binary_data_size":13}}]}`, "\x03\x00\x00\x00abc\x02\x00\x00\x00de"))
	add("fp16 binary in, json out", binaryPost("id_fp16", `{"inputs":[{"name":"INPUT0","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}}]}`, "\x00\x3c\x00\x40"))
	add("fp16 json in", post("id_fp16", `{"inputs":[{"name":"INPUT0","datatype":"FP16","shape":[2],"data":[1,2]}]}`))
	for _, length := range []string{"-1", "x", "0", "100000", "99999999999999999999"} {
		add("header length "+length, httpRequest("POST", "/v2/models/id_fp32/infer", "Inference-Header-Content-Length: "+length, in(16)+four))
	}
	add("raw", httpRequest("POST", "/v2/models/id_fp32/infer", "Inference-Header-Content-Length: 0", four))
	add("encoding unknown", httpRequest("POST", "/v2/models/id_fp32/infer", "Content-Encoding: br", fp32))
	add("encoding wrong", httpRequest("POST", "/v2/models/id_fp32/infer", "Content-Encoding: gzip", fp32))

	// These requests use classification.
	for _, count := range []string{"1", "2", "9", "0", "-1", `"x"`} {
		add("classification "+count, post("labels", strings.TrimSuffix(fp32, "}")+`,"outputs":[{"name":"OUTPUT0","parameters":{"classification":`+count+`}}]}`))
	}
	add("classification binary", post("labels", strings.TrimSuffix(fp32, "}")+`,"outputs":[{"name":"OUTPUT0","parameters":{"classification":2,"binary_data":true}}]}`))
	add("classification without labels", post("id_fp32", strings.TrimSuffix(fp32, "}")+`,"outputs":[{"name":"OUTPUT0","parameters":{"classification":2}}]}`))

	for _, m := range misbehaviours {
		if !comparable(m) {
			continue
		}
		add("model "+m.name, post(m.name, fmt.Sprintf(inferBody, -1)))
	}
	return list
}

// better maps the exchanges whose replies differ on purpose to the reason.
var better = map[string]string{
	"GET /v2/models/none/ready":          "later releases of Triton say what is missing, with 404",
	"bad: too few":                       "later releases of Triton tell too few from too many",
	"bad: huge shape":                    "later releases of Triton refuse a size that overflows first",
	"header length x":                    "a length that is no number is refused, not taken as 0",
	"header length 99999999999999999999": "a length that is out of range is said to be that",
	"encoding wrong":                     "a corrupt body is refused, not taken as empty",
	"model returns_arrays":               "later releases of Triton have one argument more",
	"gRPC output twice":                  "later releases of Triton refuse it",
}

// TestSameAsTritonOverHTTP sends the same HTTP requests to Triton and this server and expects the
// same replies.
func TestSameAsTritonOverHTTP(t *testing.T) {
	dir := yardstick(t)
	repository := differentialRepository(t)
	triton := startTriton(t, dir, repository)
	nereid := start(t, "/usr/bin/python3", repository)
	different := 0
	for _, e := range httpExchanges() {
		want, wantErr := triton.raw(e.request)
		got, err := nereid.raw(e.request)
		if want == got && (err == nil) == (wantErr == nil) {
			continue
		}
		if reason, ok := better[e.name]; ok {
			t.Logf("%s differs: %s", e.name, reason)
			continue
		}
		different++
		t.Errorf("%s\n   Triton: %q %v\n   Nereid: %q %v", e.name, want, wantErr, got, err)
	}
	t.Logf("%d answers differ of %d", different, len(httpExchanges()))
}

// TestSameAsTritonOverGRPC makes the same RPCs on Triton and this server, with a script that prints
// the replies as JSON, and expects the same replies.
func TestSameAsTritonOverGRPC(t *testing.T) {
	dir := yardstick(t)
	repository := differentialRepository(t)
	answers := func(s *runningServer) map[string]json.RawMessage {
		output, err := exec.Command(clientPython(t), "testdata/grpc_answers.py", fmt.Sprintf("127.0.0.1:%d", s.grpc)).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		byName := map[string]json.RawMessage{}
		if err := json.Unmarshal(output, &byName); err != nil {
			t.Fatal(err)
		}
		return byName
	}
	want := answers(startTriton(t, dir, repository))
	got := answers(start(t, "/usr/bin/python3", repository))
	for name, answer := range want {
		if string(got[name]) == string(answer) {
			continue
		}
		if reason, ok := better["gRPC "+name]; ok {
			t.Logf("%s differs: %s", name, reason)
			continue
		}
		t.Errorf("%s\n   Triton: %s\n   Nereid: %s", name, answer, got[name])
	}
}
