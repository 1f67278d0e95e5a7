package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// patience is the time limit for any step on a busy machine.
const patience = 60 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s after %v", what, patience)
		}
	}
}

// reservePort returns a port of 127.0.0.1 that stays reserved until the test ends.
func reservePort(t *testing.T) int {
	t.Helper()
	port, release, err := bindPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// bindPort binds a socket, without listening, to a port that the kernel chooses. A server that sets
// SO_REUSEADDR can listen on it. The kernel gives the port to no other process until release.
func bindPort() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = syscall.Close(fd) }
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	name, nameErr := syscall.Getsockname(fd)
	if err = errors.Join(err, nameErr); err != nil {
		release()
		return 0, nil, err
	}
	return name.(*syscall.SockaddrInet4).Port, release, nil
}

// pod is the server of a rendered pod, run as a local process.
type pod struct {
	line  []string
	ports map[string]int // by flag name
	// releases release the ports after the process has ended.
	releases []func()
	log      bytes.Buffer
	lock     sync.Mutex
	cmd      *exec.Cmd
	ended    chan error
}

func (p *pod) Write(text []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.log.Write(text)
}

// run starts the real server with a container's arguments and stops it at the end of the test.
func run(t *testing.T, arguments []string, repository string) *pod {
	t.Helper()
	p, err := launch(arguments, repository, "--exit-delay-secs=0")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("bin/nereid is not built: make charts builds it")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-p.ended:
			if err != nil {
				t.Errorf("after SIGTERM: %v, want exit code 0", err)
			}
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			t.Error("it did not end after SIGTERM")
		}
		if t.Failed() {
			p.lock.Lock()
			t.Logf("%v printed\n%s", p.line, p.log.String())
			p.lock.Unlock()
		}
	})
	return p
}

// launch starts the real server with a container's arguments, but with reserved ports and the given
// repository.
func launch(arguments []string, repository string, more ...string) (*pod, error) {
	binary, err := filepath.Abs("../../bin/nereid")
	if err != nil {
		return nil, err
	}
	p := &pod{ports: map[string]int{}, ended: make(chan error, 1)}
	for _, argument := range arguments {
		name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		switch name {
		case "model-repository", "model-store":
			argument = "--" + name + "=" + repository
		}
		p.line = append(p.line, argument)
	}
	// If a flag is repeated, the last one wins.
	for _, name := range []string{"http-port", "grpc-port", "metrics-port"} {
		var release func()
		if p.ports[name], release, err = bindPort(); err != nil {
			return nil, err
		}
		p.releases = append(p.releases, release)
		p.line = append(p.line, "--"+name+"="+strconv.Itoa(p.ports[name]))
	}
	p.line = append(p.line, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1")
	if python := os.Getenv("NEREID_CLIENT_PYTHON"); python != "" {
		p.line = append(p.line, "--backend-config=python,python-executable="+python)
	}
	p.line = append(p.line, more...)
	p.cmd = exec.Command(binary, p.line...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		err := p.cmd.Wait()
		for _, release := range p.releases {
			release()
		}
		p.ended <- err
	}()
	return p, nil
}

// says returns the status of a request to a port, or 0 if there is no response.
func (p *pod) says(port int, path string) int {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// write creates a repository with one model. execute is the first statement of its execute method.
func write(t *testing.T, execute string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"m/config.pbtxt": "backend: \"python\"\ninput [ { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: \"Y\" data_type: TYPE_FP32 dims: [ 1 ] } ]\ninstance_group [ { kind: KIND_CPU } ]\n",
		"m/1/model.py": "import os, time\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n        " + execute +
			"\n        return [pb_utils.InferenceResponse([pb_utils.Tensor(\"Y\", pb_utils.get_input_tensor_by_name(r, \"X\").as_numpy())]) for r in requests]\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// containers returns the containers of some chart variants and of the KServe runtime.
func containers(t *testing.T) map[string]corev1.Container {
	t.Helper()
	found := map[string]corev1.Container{}
	for _, variant := range []string{"default", "explicit", "many pods"} {
		objects, err := render(t, strings.ReplaceAll(variants[variant], "loadModels: [ a, b ]", "loadModels: [ m ]"))
		if err != nil {
			t.Fatal(err)
		}
		var deployment struct {
			Spec struct {
				Template struct {
					Spec corev1.PodSpec `json:"spec"`
				} `json:"template"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(find(objects, "Deployment").text, &deployment); err != nil {
			t.Fatal(err)
		}
		found[variant] = deployment.Spec.Template.Spec.Containers[0]
	}
	text, err := os.ReadFile("../kserve/clusterservingruntime.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var runtime servingRuntime
	if err := yaml.Unmarshal(text, &runtime); err != nil {
		t.Fatal(err)
	}
	kserve := runtime.Spec.Containers[0]
	found["kserve"] = kserve
	// This is KServe's own runtime with the image replaced, for an InferenceService without
	// storageUri.
	plain := kserve
	plain.Args = append([]string{"tritonserver", "--model-store=/mnt/models", "--grpc-port=9000", "--http-port=8080", "--allow-grpc=true", "--allow-http=true"}, "--model-control-mode=explicit")
	found["kserve without models"] = plain
	return found
}

// TestCommandLinesAreServed starts the real server with each container's command line, and checks
// that its probes succeed and SIGTERM stops it.
func TestCommandLinesAreServed(t *testing.T) {
	for name, container := range containers(t) {
		t.Run(name, func(t *testing.T) {
			repository := write(t, "pass")
			if name == "kserve without models" {
				repository = t.TempDir()
			}
			p := run(t, container.Args, repository)
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
				eventually(t, probe.HTTPGet.Path, func() bool { return p.says(p.ports["http-port"], probe.HTTPGet.Path) == http.StatusOK })
			}
			if status := p.says(p.ports["metrics-port"], "/metrics"); status != http.StatusOK {
				t.Errorf("/metrics: status %d", status)
			}
		})
	}
}

// TestQueriesByPrometheus scrapes a server with pending requests with a real Prometheus, and checks
// the results of the autoscalers' queries, the alerts and the dashboard.
func TestQueriesByPrometheus(t *testing.T) {
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus on PATH (Debian: apt-get install prometheus)")
	}
	const waiting = 5
	flag := filepath.Join(t.TempDir(), "go")
	p := run(t, containers(t)["default"].Args, write(t, fmt.Sprintf("while not os.path.exists(%q): time.sleep(0.01)", flag)))
	eventually(t, "ready", func() bool { return p.says(p.ports["http-port"], "/v2/health/ready") == http.StatusOK })
	var clients sync.WaitGroup
	for range waiting + 1 { // one executes
		clients.Go(func() {
			body := `{"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}`
			answer, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", p.ports["http-port"]), "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("status %d", answer.StatusCode)
			}
		})
	}
	defer clients.Wait()
	open := sync.OnceFunc(func() {
		if err := os.WriteFile(flag, nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	defer open()

	folder, port := t.TempDir(), reservePort(t)
	config := filepath.Join(folder, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n- job_name: pods\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  static_configs:\n  - targets: ['127.0.0.1:%d']\n    labels: { namespace: serving, pod: test-nereid-7c9d86bd54-x2bqz }\n", p.ports["metrics-port"])
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := exec.CommandContext(ctx, prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("prometheus printed\n%s", log.String())
		}
	}()
	// ask returns the values of a PromQL expression and their labels.
	ask := func(expression string) (values []string, labels []map[string]string, failure string) {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", port, url.QueryEscape(expression)))
		if err != nil {
			return nil, nil, err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, nil, err.Error()
		}
		var reply struct {
			Status, Error string
			Data          struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		if err := json.Unmarshal(body, &reply); err != nil || reply.Status != "success" {
			return nil, nil, fmt.Sprintf("%v %s", err, body)
		}
		for _, result := range reply.Data.Result {
			values, labels = append(values, fmt.Sprint(result.Value[1])), append(labels, result.Metric)
		}
		return values, labels, ""
	}

	// KEDA requires a single value.
	objects, err := render(t, variants["keda"])
	if err != nil {
		t.Fatal(err)
	}
	triggers := list(at(find(objects, "ScaledObject").fields, "spec", "triggers"))
	if len(triggers) != 2 {
		t.Fatalf("got %d triggers, want requests that wait and busy instances", len(triggers))
	}
	query := func(i int) string { return triggers[i]["metadata"].(map[string]any)["query"].(string) }
	eventually(t, "KEDA's query to count the requests that wait", func() bool {
		values, _, _ := ask(query(0))
		return len(values) == 1 && values[0] == strconv.Itoa(waiting)
	})
	// A request counts as busy only after its response, and none has had one yet.
	eventually(t, "KEDA's query to find idle instances", func() bool {
		values, _, _ := ask(query(1))
		return len(values) == 1 && values[0] == "0"
	})

	// The adapter queries each pod by the metric's name and these labels.
	var rules struct {
		Rules []struct {
			Name         struct{ As string }
			SeriesQuery  string `json:"seriesQuery"`
			MetricsQuery string `json:"metricsQuery"`
		}
	}
	adapter, err := os.ReadFile(chartFolder + "/files/adapter-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(adapter, &rules); err != nil || len(rules.Rules) == 0 {
		t.Fatalf("got %d rules and %v", len(rules.Rules), err)
	}
	known, busy := map[string]bool{}, ""
	for _, rule := range rules.Rules {
		known[rule.Name.As] = true
		series, _, _ := strings.Cut(rule.SeriesQuery, "{")
		expand := strings.NewReplacer("<<.Series>>", series, "<<.LabelMatchers>>", `namespace="serving",pod="test-nereid-7c9d86bd54-x2bqz"`, "<<.GroupBy>>", "pod")
		if rule.Name.As == "nereid_busy_share" {
			busy = expand.Replace(rule.MetricsQuery)
		}
		// Rates exist from the second scrape on.
		eventually(t, rule.Name.As, func() bool {
			values, labels, _ := ask(expand.Replace(rule.MetricsQuery))
			return len(values) == 1 && labels[0]["pod"] == "test-nereid-7c9d86bd54-x2bqz" && values[0] != "NaN" && (rule.Name.As != "nv_inference_pending_request_count" || values[0] == strconv.Itoa(waiting))
		})
		eventually(t, "the adapter's query to find "+rule.SeriesQuery, func() bool { // a late scrape hides its series
			values, _, _ := ask(rule.SeriesQuery)
			return len(values) > 0
		})
	}
	objects, err = render(t, variants["hpa"])
	if err != nil {
		t.Fatal(err)
	}
	metrics := list(at(find(objects, "HorizontalPodAutoscaler").fields, "spec", "metrics"))
	for _, metric := range metrics[:2] {
		if name := at(metric, "pods", "metric", "name").(string); !known[name] {
			t.Errorf("the HPA wants the metric %s, and the adapter's rules have %v", name, known)
		}
	}

	// No alert may fire, and the dashboard's queries must be valid.
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	file, err := os.ReadFile(chartFolder + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(file, &alerts); err != nil {
		t.Fatal(err)
	}
	for _, rule := range alerts.Groups[0].Rules {
		if values, _, failure := ask(rule.Expr); failure != "" || len(values) > 0 {
			t.Errorf("%s: got %v %s, want no alert", rule.Alert, values, failure)
		}
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	file, err = os.ReadFile(chartFolder + "/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expression := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$__interval", "1m", "$model", ".*", "$namespace", ".*", "$pod", ".*", "$instance", ".*", "$job", ".*").Replace(target.Expr)
			if _, _, failure := ask(expression); failure != "" {
				t.Errorf("%s: %s", target.Expr, failure)
			}
		}
	}
	open()
	// The instance has been busy the whole time, waiting for the file.
	for _, expression := range []string{busy, query(1)} {
		eventually(t, expression, func() bool {
			values, _, _ := ask(expression)
			if len(values) != 1 {
				return false
			}
			share, err := strconv.ParseFloat(values[0], 64)
			return err == nil && share > 0 && share <= 1
		})
	}
}

// TestAlertsRing runs promtool's unit tests of the alerts.
func TestAlertsRing(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool on PATH (Debian: apt-get install prometheus)")
	}
	command := exec.Command(promtool, "test", "rules", "alerts_test.yaml")
	command.Dir = chartFolder + "/files"
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
