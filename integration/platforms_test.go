package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// cloudRequest is a request to the endpoint of a cloud platform and its reply. Each byte of a body
// is written as the character with its number.
type cloudRequest struct {
	Cloud, Method, Path, Body string
	Headers                   map[string]string
	Status                    int
	Type, Length, Reply       string
	Begins                    bool // Reply is only a prefix of the body
	Differs                   bool // the reply differs from Triton 24.10
}

// cloudRepository creates a repository with one model, and sets the environment variables of the
// cloud platforms.
func cloudRepository(t *testing.T) string {
	t.Setenv("AIP_PREDICT_ROUTE", "/predict")
	t.Setenv("AIP_HEALTH_ROUTE", "/health")
	t.Setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "batch")
	return writeFiles(t, map[string]string{
		"batch/config.pbtxt": `
backend: "python"
max_batch_size: 8
input [ { name: "N" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
`,
		"batch/1/model.py": strings.ReplaceAll(identityModel, `t.name().replace("INPUT", "OUTPUT")`, `"OUT"`),
	})
}

func cloudFlags(t *testing.T) (flags []string, ports map[string]int) {
	free := testkit.Ports(t, 2)
	return []string{"--allow-sagemaker=true", fmt.Sprintf("--sagemaker-port=%d", free[0]), "--allow-vertex-ai=true",
		fmt.Sprintf("--vertex-ai-port=%d", free[1])}, map[string]int{"S": free[0], "V": free[1]}
}

// awaitPorts waits until the ports accept connections. Triton opens some of them only after it
// reports that it is live.
func awaitPorts(t *testing.T, ports map[string]int) {
	t.Helper()
	for _, port := range ports {
		testkit.Eventually(t, startLimit, func() bool {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
	}
}

// checkPlatforms sends the requests of a file in order. BASE in them stands for base.
func checkPlatforms(t *testing.T, file string, ports map[string]int, base string, differing bool) {
	t.Helper()
	checkRows(t, filepath.Join("testdata", file), func(row cloudRequest) {
		row.Body, row.Reply = strings.ReplaceAll(row.Body, "BASE", base), strings.ReplaceAll(row.Reply, "BASE", base)
		if !row.Differs || differing {
			row.check(t, ports[row.Cloud])
		}
	})
}

func checkRows(t *testing.T, path string, check func(cloudRequest)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for rows := json.NewDecoder(file); ; {
		var row cloudRequest
		err := rows.Decode(&row)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		check(row)
	}
}

func (c *cloudRequest) check(t *testing.T, port int) {
	t.Helper()
	r, err := http.NewRequest(c.Method, fmt.Sprintf("http://127.0.0.1:%d%s", port, c.Path), strings.NewReader(bytesOf(c.Body)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range c.Headers {
		r.Header[name] = []string{value}
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	same := string(body) == bytesOf(c.Reply) || c.Begins && strings.HasPrefix(string(body), c.Reply)
	if !same || reply.StatusCode != c.Status || reply.Header.Get("Content-Type") != c.Type || reply.Header.Get("Inference-Header-Content-Length") != c.Length {
		t.Errorf("%s %s %s %q %v: got %d %v %q\nwant %d %s %s %q", c.Cloud, c.Method, c.Path, c.Body, c.Headers,
			reply.StatusCode, reply.Header, body, c.Status, c.Type, c.Length, c.Reply)
	}
}

// bytesOf converts each character to a byte.
func bytesOf(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		b = append(b, byte(r))
	}
	return string(b)
}

// TestPlatformsAreAnsweredAsByTriton compares replies with the rows of testdata/platforms.jsonl.
// They are Triton's replies, except in rows marked as different.
func TestPlatformsAreAnsweredAsByTriton(t *testing.T) {
	flags, ports := cloudFlags(t)
	start(t, testkit.Python(t).Path, cloudRepository(t), flags...)
	checkPlatforms(t, "platforms.jsonl", ports, "", true)
}

// TestPlatformsSameAsTriton checks the recorded replies against a real Triton.
func TestPlatformsSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	flags, ports := cloudFlags(t)
	startTriton(t, dir, cloudRepository(t), flags...)
	awaitPorts(t, ports)
	checkPlatforms(t, "platforms.jsonl", ports, "", false)
}

// TestSageMakerGenerates checks the reply for each SAGEMAKER_TRITON_INFERENCE_TYPE.
func TestSageMakerGenerates(t *testing.T) {
	for kind, want := range map[string]string{
		"generate":        `{"OUT":[1,2],"model_name":"batch","model_version":"1"}`,
		"generate_stream": `data: {"OUT":[1,2],"model_name":"batch","model_version":"1"}` + "\n\n",
		"other":           `{"error":"Server has invalid inference type 'other'. Must be one of: infer, generate, generate_stream."}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("SAGEMAKER_TRITON_INFERENCE_TYPE", kind)
			t.Setenv("SAGEMAKER_TRITON_PING_MODE", "live")
			flags, ports := cloudFlags(t)
			start(t, testkit.Python(t).Path, cloudRepository(t), flags...)
			reply, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/invocations", ports["S"]), "application/json", strings.NewReader(`{"N":[1,2]}`))
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if body, err := io.ReadAll(reply.Body); err != nil || string(body) != want {
				t.Errorf("got %q, %v, want %q", body, err, want)
			}
		})
	}
}

// TestVertexEnvironmentIsEnough checks that the environment variables of a Vertex AI container
// enable its endpoint, and only that, without flags.
func TestVertexEnvironmentIsEnough(t *testing.T) {
	repository := cloudRepository(t)
	port := testkit.Port(t)
	t.Setenv("AIP_MODE", "PREDICTION")
	t.Setenv("AIP_HTTP_PORT", fmt.Sprint(port))
	t.Setenv("AIP_STORAGE_URI", repository)
	s := launch(t, testkit.Python(t).Path, repository)
	at := fmt.Sprintf("http://127.0.0.1:%d", port)
	s.until("healthy", func() bool {
		reply, err := client.Get(at + "/health")
		return err == nil && reply.Body.Close() == nil && reply.StatusCode == http.StatusOK
	})
	reply, err := client.Post(at+"/predict", "", strings.NewReader(`{"inputs":[{"name":"N","datatype":"INT32","shape":[1,1],"data":[7]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if body, err := io.ReadAll(reply.Body); err != nil || !strings.Contains(string(body), `"data":[7]`) {
		t.Errorf("got %s, %v", body, err)
	}
	if _, _, err := s.try(http.MethodGet, "/v2/health/live", nil, nil); err == nil {
		t.Error("the HTTP endpoint listens, too")
	}
}

// TestPlatformsThatCannotStartSayWhy checks that a failed start of the Vertex AI endpoint prints
// Triton's error.
func TestPlatformsThatCannotStartSayWhy(t *testing.T) {
	repository := cloudRepository(t)
	for _, tt := range []struct {
		environment map[string]string
		flags, want string
	}{
		{map[string]string{"AIP_PREDICT_ROUTE": ""}, "", "Invalid argument - API_PREDICT_ROUTE is not defined for Vertex AI endpoint"},
		{map[string]string{"AIP_HEALTH_ROUTE": ""}, "", "Invalid argument - AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint"},
		{map[string]string{"AIP_HEALTH_ROUTE": "("}, "", "Invalid argument - AIP_HEALTH_ROUTE is "},
		{nil, "--vertex-ai-default-model=other", "Invalid argument - Expect the default model 'other' is loaded"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			port := testkit.Port(t)
			flags := append([]string{"--allow-vertex-ai=true", fmt.Sprintf("--vertex-ai-port=%d", port)}, strings.Fields(tt.flags)...)
			s := launch(t, testkit.Python(t).Path, repository, flags...)
			if status := s.wait(startLimit); status != 1 || !s.prints("failed to start Vertex AI service: "+tt.want) {
				t.Errorf("exit status %d, want 1 and %q in:\n%s", status, tt.want, s.log)
			}
		})
	}
}
