package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/recording"
)

// TestRecordInTheRepositoryIsRefused checks that --record rejects a directory inside the
// repository, where it would become a model.
func TestRecordInTheRepositoryIsRefused(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")})
	s := launch(t, testkit.Python(t).Path, repository, "--record="+repository+"/records")
	if status := s.wait(startLimit); status != 1 || !strings.Contains(s.log.String(), "is inside the model repository") {
		t.Errorf("got status %d and\n%s", status, s.log.String())
	}
}

// TestRecordedRequestIsABody sends the head and tensors of a recorded request as a body, as
// docs/record.md describes, and expects success.
func TestRecordedRequestIsABody(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": checkedConfig, "m/1/model.py": checking("B")}), "--record="+records)
	status, first := s.request("POST", "/v2/models/m/infer", `{"id":"7","inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[1.5,2]}]}`)
	if status != http.StatusOK {
		t.Fatalf("got %d %s", status, first)
	}
	var files []string
	s.until("a record is written", func() bool {
		var err error
		files, err = recording.Files(records)
		return err == nil && len(files) == 1
	})
	r, err := recording.Open(files[0])
	if err != nil || len(r.Answers) != 1 || string(r.Answers[0].Tensors[0].Data) != string(r.Request.Tensors[0].Data) || r.Request.ID != "7" {
		t.Fatalf("got %+v, %v", r, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	head := strings.Index(rest, "}]}") + len("}]}")
	q, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", s.http), strings.NewReader(rest[:head+8]))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	reply, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("got status %s for %q", reply.Status, rest[:head])
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
}

// replayed returns models whose requests are recorded and replayed. "single" multiplies its input
// and rejects negative numbers, "stream" responds several times, and "sequence" uses sequences.
func replayed(factor string) map[string]string {
	// The model sorts the parameters, because they have no order over gRPC.
	const head = "import json\nimport numpy as np\nimport triton_python_backend_utils as pb\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n"
	return map[string]string{
		"single/config.pbtxt": checkedConfig + "output { name: \"TEXT\" data_type: TYPE_STRING dims: [ 1 ] }\n",
		"single/1/model.py": head + `
        answers = []
        for r in requests:
            a = pb.get_input_tensor_by_name(r, "A").as_numpy()
            if (a < 0).any():
                answers.append(pb.InferenceResponse(error=pb.TritonError("negative")))
                continue
            outputs = [pb.Tensor("B", (a * ` + factor + `).astype(np.float32)), pb.Tensor("TEXT", np.array([json.dumps(json.loads(r.parameters()), sort_keys=True)], dtype=np.object_))]
            answers.append(pb.InferenceResponse(outputs, parameters={"count": len(a)}))
        return answers
`,
		"stream/config.pbtxt": "model_transaction_policy { decoupled: true }\n" + checkedConfig,
		"stream/1/model.py": head + `
        for r in requests:
            sender = r.get_response_sender()
            a = pb.get_input_tensor_by_name(r, "A").as_numpy()
            for i in range(3):
                sender.send(pb.InferenceResponse([pb.Tensor("B", (a * ` + factor + ` + i).astype(np.float32))]))
            sender.send(pb.InferenceResponse(error=pb.TritonError("the end")))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`,
		"sequence/config.pbtxt": "max_batch_size: 2\nsequence_batching { }\n" + checkedConfig,
		"sequence/1/model.py": head + `
        answers = []
        for r in requests:
            if r.flags() & 1:
                self.sum = 0
            self.sum = self.sum + pb.get_input_tensor_by_name(r, "A").as_numpy() * ` + factor + `
            answers.append(pb.InferenceResponse([pb.Tensor("B", self.sum.astype(np.float32))]))
        return answers
`,
	}
}

// TestReplayReportsEachDifference records requests of all kinds, and replays them to the same
// and to changed models, over both protocols and TLS. `nereid replay` must report each difference.
func TestReplayReportsEachDifference(t *testing.T) {
	records, python := filepath.Join(t.TempDir(), "records"), testkit.Python(t).Path
	s := start(t, python, writeFiles(t, replayed("1")), "--record="+records, "--record-redact=secret")
	for _, q := range []struct{ model, body string }{
		{"single", `{"id":"7","parameters":{"x":1.5,"y":"z"},"inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[1.5,2]}]}`},
		{"single", `{"inputs":[{"name":"A","shape":[1],"datatype":"FP32","data":[1]}],"outputs":[{"name":"B"}]}`},
		{"single", `{"inputs":[{"name":"A","shape":[1],"datatype":"FP32","data":[-1]}]}`},
		{"single", `{"inputs":[{"name":"A","shape":[1],"datatype":"INT32","data":[1]}]}`},
		{"sequence", `{"parameters":{"sequence_id":5,"sequence_start":true},"inputs":[{"name":"A","shape":[1,1],"datatype":"FP32","data":[1]}]}`},
		{"sequence", `{"parameters":{"sequence_id":5,"sequence_end":true},"inputs":[{"name":"A","shape":[1,1],"datatype":"FP32","data":[2]}]}`},
	} {
		s.request("POST", "/v2/models/"+q.model+"/infer", q.body)
	}
	if _, text := s.request("POST", "/v2/models/stream/generate_stream", `{"A":[4]}`); !strings.Contains(text, "the end") {
		t.Errorf("generate_stream: got %s", text)
	}
	s.until("all are recorded", func() bool {
		files, err := recording.Files(records)
		return err == nil && len(files) == 7
	})
	s.until("metrics count them", func() bool { return s.figure("nereid_requests_recorded_total") == 7 })
	s.wantSamples("nereid_requests_not_recorded_total 0", "nereid_recording 1")
	for _, protocol := range []string{"http", "grpc"} { // to the recording server, which must not record replayed requests
		if status, out, stderr := command(t, "replay", records, fmt.Sprintf("--url=127.0.0.1:%d", s.http), fmt.Sprintf("--grpc-url=127.0.0.1:%d", s.grpc), "--protocol="+protocol); status != 0 {
			t.Errorf("to the server that records, over %s: got status %d, %s%s", protocol, status, out, stderr)
		}
	}
	s.stop()
	if files, err := recording.Files(records); err != nil || len(files) != 7 {
		t.Fatalf("got %q, %v, want 7 records", files, err)
	}

	s = start(t, python, writeFiles(t, replayed("1")))
	addresses := func(s *runningServer) []string {
		return []string{"replay", records, fmt.Sprintf("--url=127.0.0.1:%d", s.http), fmt.Sprintf("--grpc-url=127.0.0.1:%d", s.grpc)}
	}
	for _, protocol := range []string{"http", "grpc"} {
		if status, out, stderr := command(t, append(addresses(s), "--protocol="+protocol, "--concurrency=8")...); status != 0 || out != "7 requests: 7 the same, 0 different, 0 not sent\n" {
			t.Errorf("%s: got status %d, %s%s", protocol, status, out, stderr)
		}
	}
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	bench := exec.Command(binary, "bench", "single", "--input-record="+records, fmt.Sprintf("--url=127.0.0.1:%d", s.http), "--duration=300ms", "--warm-up=0s")
	if text, _ := bench.CombinedOutput(); !strings.Contains(string(text), "negative") || !strings.Contains(string(text), "single at 127.0.0.1") {
		t.Errorf("bench: got %s, want load of which a part is refused", text)
	}
	s.stop()

	s = start(t, python, writeFiles(t, replayed("1.0001")))
	for _, c := range []struct {
		flags string
		want  []string
	}{
		{"--model=single", []string{
			": output B: element [0] is 1.50015, was 1.5; 2 of 2 elements differ\n", ": output B: element [0] is 1.0001, was 1\n", "4 requests: 2 the same, 2 different, 0 not sent",
		}},
		{"--model=stream", []string{": response 1: output B: element [0] is 4.0004, was 4\n", ": response 3: output B: ", "1 request: 0 the same, 1 different, 0 not sent"}},
		{"--model=sequence --protocol=grpc", []string{"element [0,0] is 3.0003, was 3\n", "2 requests: 0 the same, 2 different, 0 not sent"}},
		{"--tolerance=1e-3", []string{"7 requests: 7 the same, 0 different, 0 not sent"}},
		{"--ignore-output=B", []string{"7 requests: 7 the same, 0 different, 0 not sent"}},
	} {
		status, out, stderr := command(t, append(addresses(s), strings.Fields(c.flags)...)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) || (status == 0) != strings.Contains(out, " 0 different, 0 not") {
				t.Errorf("%s: got status %d and\n%s%s, want %s", c.flags, status, out, stderr, want)
			}
		}
	}
	gone := addresses(s)
	s.stop()

	certificate := filepath.Join(t.TempDir(), "server")
	testkit.WriteCertificate(t, certificate+".crt", certificate+".key")
	t.Setenv("SSL_CERT_FILE", certificate+".crt")
	port := testkit.Port(t)
	s = start(t, python, writeFiles(t, replayed("1")), fmt.Sprintf("--https-port=%d", port), "--https-server-cert="+certificate+".crt", "--https-server-key="+certificate+".key",
		"--grpc-use-ssl=true", "--grpc-server-cert="+certificate+".crt", "--grpc-server-key="+certificate+".key")
	https, grpcs := fmt.Sprintf("https://localhost:%d", port), fmt.Sprintf("https://localhost:%d", s.grpc)
	if status, out, stderr := command(t, "replay", records, "--url="+https, "--grpc-url="+grpcs); status != 0 {
		t.Errorf("over TLS: got status %d, %s%s", status, out, stderr)
	}
	for protocol, url := range map[string]string{"http": https, "grpc": grpcs, "stream": grpcs} {
		if status, out, stderr := command(t, "bench", "single", "--url="+url, "--protocol="+protocol, "--input=A=zero", "--duration=1s", "--warm-up=0s"); status != 0 {
			t.Errorf("bench over TLS, %s: got status %d, %s%s", protocol, status, out, stderr)
		}
	}
	s.stop()
	for _, protocol := range []string{"http", "grpc"} {
		status, out, stderr := command(t, append(gone, "--protocol="+protocol)...)
		if status != 1 || out != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "nereid replay: no server answers at 127.0.0.1:") || !strings.Contains(stderr, "connection refused") {
			t.Errorf("without a server, over %s: got status %d, %q and %q, want one line", protocol, status, out, stderr)
		}
	}
}

// TestReplayOfAFile sends a file as a body. Its record must be replayed and benchmarked as the
// resulting request. Only real replays may be left out of the recording, not requests of clients
// that imitate them.
func TestReplayOfAFile(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"m/config.pbtxt": "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_STRING dims: [ 1 ] }\noutput { name: \"B\" data_type: TYPE_STRING dims: [ 1 ] }\n",
		"m/1/model.py":   checking("B"),
	}), "--record="+records)
	file := []byte("\xff\xd8\xff\xe0 a picture")
	status, reply, err := s.try("POST", "/v2/models/m/infer", map[string]string{"Content-Type": "image/jpeg", "Nereid-Replay": "1"}, file)
	if err != nil || status != http.StatusOK || !strings.Contains(reply, string(file)) {
		t.Fatalf("got %d %q, %v", status, reply, err)
	}
	recorded := func(n float64) {
		t.Helper()
		s.until("the request is recorded", func() bool { return s.figure("nereid_requests_recorded_total") == n })
	}
	recorded(1)
	for _, protocol := range []string{"http", "grpc"} {
		status, out, stderr := command(t, "replay", records, "--protocol="+protocol, fmt.Sprintf("--url=127.0.0.1:%d", s.http), fmt.Sprintf("--grpc-url=127.0.0.1:%d", s.grpc))
		if status != 0 || out != "1 request: 1 the same, 0 different, 0 not sent\n" {
			t.Errorf("replay over %s: got status %d, %s%s", protocol, status, out, stderr)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "records") // without the key of the recording server
	if err := os.CopyFS(filepath.Join(elsewhere, "m"), os.DirFS(filepath.Join(records, "m"))); err != nil {
		t.Fatal(err)
	}
	if status, out, stderr := command(t, "replay", elsewhere, fmt.Sprintf("--url=127.0.0.1:%d", s.http)); status != 0 {
		t.Errorf("replay without the key: got status %d, %s%s", status, out, stderr)
	}
	recorded(2)
	if status, out, stderr := command(t, "bench", "m", "--input-record="+elsewhere, fmt.Sprintf("--url=127.0.0.1:%d", s.http), "--duration=100ms", "--warm-up=0s"); status != 0 {
		t.Errorf("bench: got status %d, %s%s", status, out, stderr)
	}
}

// TestReplayRejectsInvalidRecords checks the errors of `nereid replay` for missing and invalid
// records.
func TestReplayRejectsInvalidRecords(t *testing.T) {
	directory := writeFiles(t, map[string]string{"empty/x": "", "broken/1.record": "no record"})
	for want, c := range map[string]struct {
		status    int
		arguments []string
	}{
		"does not exist: want a directory with records":                                                  {2, []string{directory + "/absent"}},
		"there are no records in " + directory + "/empty: create them by running a server with --record": {1, []string{directory + "/empty"}},
		"1.record: not sent: it is not a record":                                                         {1, []string{directory + "/broken"}},
		"--protocol is \"x\", want http or grpc":                                                         {2, []string{directory, "--protocol=x"}},
		"the directory with records is missing":                                                          {2, nil},
	} {
		status, out, stderr := command(t, append([]string{"replay"}, c.arguments...)...)
		if status != c.status || !strings.Contains(out+stderr, want) {
			t.Errorf("%q: got status %d, %s%s, want %d and %q", c.arguments, status, out, stderr, c.status, want)
		}
	}
}
