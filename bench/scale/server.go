package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// patience is how long a server may take to start or to end.
const patience = 20 * time.Minute

// rival is a kind of server.
type rival struct {
	name    string
	command []string
	most    int // models, or instances; 0: any number
}

// server is a running server.
type server struct {
	*measure.Process
	http, grpc, metrics string // addresses
	log                 *os.File
	took                time.Duration // from its start until it was ready
	client              *http.Client
}

// start runs a server on a repository until it is ready. The prefix is a wrapper for its command
// line.
func (v rival) start(repository string, prefix []string, more ...string) (*server, error) {
	ports, err := measure.ReservePorts(3)
	if err != nil {
		return nil, err
	}
	arguments := append(append(append([]string{}, prefix...), v.command...),
		"--model-repository="+repository, "--model-control-mode=explicit", "--load-model=*", "--strict-readiness=false", "--exit-timeout-secs=300",
		"--http-address=127.0.0.1", "--http-port="+ports[0], "--grpc-address=127.0.0.1", "--grpc-port="+ports[1],
		"--metrics-address=127.0.0.1", "--metrics-port="+ports[2])
	p := &server{
		http: "127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1], metrics: "127.0.0.1:" + ports[2],
		client: &http.Client{Timeout: patience},
	}
	if p.log, err = os.CreateTemp("", "scale"); err != nil {
		return nil, err
	}
	command := exec.Command(arguments[0], append(arguments[1:], more...)...)
	command.Stdout, command.Stderr = p.log, p.log
	began := time.Now()
	if p.Process, err = measure.Start(command); err != nil {
		p.clear()
		return nil, fmt.Errorf("%w (run \"make build\" first)", err)
	}
	err = p.AwaitReady(patience, func() bool {
		status, _, err := p.ask(http.MethodGet, p.http, "/v2/health/ready")
		return err == nil && status == http.StatusOK
	})
	if err != nil {
		p.Kill()
		text := p.printed()
		p.clear()
		return nil, fmt.Errorf("the server: %w\n%s", err, text)
	}
	p.took = time.Since(began)
	return p, nil
}

// stop stops the server like an operator. It returns how long that took, and the total processor
// time.
func (p *server) stop() (took, cpu time.Duration, err error) {
	defer p.clear()
	p.client.CloseIdleConnections()
	began := time.Now()
	if err := p.Stop(patience); err != nil {
		return 0, 0, fmt.Errorf("the server: %w\n%s", err, p.printed())
	}
	state := p.State()
	return time.Since(began), state.UserTime() + state.SystemTime(), nil
}

func (p *server) clear() {
	_ = p.log.Close()
	_ = os.Remove(p.log.Name())
}

// printed returns the end of the server's output.
func (p *server) printed() string {
	text, _ := os.ReadFile(p.log.Name())
	return string(text[max(0, len(text)-4000):])
}

// ask sends a request without a body and returns the reply's body.
func (p *server) ask(method, address, path string) (status int, body []byte, err error) {
	return p.send(method, address, path, "")
}

func (p *server) send(method, address, path, text string) (status int, body []byte, err error) {
	request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// want is send for requests that must succeed.
func (p *server) want(method, address, path, text string) ([]byte, error) {
	status, body, err := p.send(method, address, path, text)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d, %s", method, path, status, body)
	}
	return body, err
}

const inputs = `{"inputs":[{"name":"IN","datatype":"FP32","shape":%s,"data":[1,2,3,4]}]}`

// infer sends a request to a model of makeRepository.
func (p *server) infer(model string) error {
	body, err := p.want(http.MethodPost, p.http, "/v2/models/"+model+"/infer", fmt.Sprintf(inputs, "[4]"))
	if err == nil && !strings.Contains(string(body), `"OUT"`) {
		err = fmt.Errorf("the answer is %s, want an output OUT", body)
	}
	return err
}

// cost is the cost of a request.
type cost struct {
	wall, cpu time.Duration // median wall time, and mean processor time
	size      int           // of its reply
}

// repeat repeats ask for a span, and at least three times.
func (p *server) repeat(span time.Duration, ask func() ([]byte, error)) (c cost, err error) {
	pids, err := measure.Tree(p.PID())
	if err != nil {
		return c, err
	}
	once := func() error {
		body, err := ask()
		c.size = len(body)
		return err
	}
	times, err := measure.WarmRounds(span, pids, once)
	if err != nil {
		return c, err
	}
	c.wall, c.cpu = times.Quantile(0.5), times.CPUEach()
	return c, nil
}
