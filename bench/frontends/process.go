package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// patience is how long a server may take to start.
const patience = time.Minute

// process is a server under load.
type process struct {
	name       string
	command    *exec.Cmd
	http, grpc string // addresses
	ended      chan struct{}
}

// startNereid starts the server and waits until it is ready.
func startNereid(ctx context.Context, s *settings) (*process, error) {
	python := s.python
	if python == "" {
		python = measure.NewestPython()
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"--model-repository=" + s.repository, "--http-address=127.0.0.1", "--http-port=" + ports[0],
		"--grpc-address=127.0.0.1", "--grpc-port=" + ports[1], "--allow-metrics=false", "--log-info=false",
		"--model-control-mode=explicit", "--load-model=identity_fp32", "--load-model=repeat_int32",
	}
	if python != "" {
		arguments = append(arguments, "--backend-config=python,python-executable="+python)
	}
	command := exec.Command(s.binary, arguments...)
	command.Stderr = os.Stderr
	p := &process{
		name: "nereid", command: command, http: "127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1],
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// startBare starts this program as the bare server, which tells its addresses.
func startBare(ctx context.Context) (*process, error) {
	command := exec.Command(os.Args[0], "-bare")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(output)
	p := &process{name: "bare server", command: command}
	if err := p.start(); err != nil {
		return nil, err
	}
	line, err := lines.ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 2 {
		return nil, errors.Join(fmt.Errorf("it printed %q, want two addresses", line), err, p.stop())
	}
	p.http, p.grpc = fields[0], fields[1]
	return p, ctx.Err()
}

// start starts the process in a group of its own, which Ctrl-C does not reach.
func (p *process) start() error {
	p.command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	p.ended = make(chan struct{})
	if err := p.command.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.command.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	return nil
}

// stop ends the server as its operator would. A server that had ended before is
// an error.
func (p *process) stop() error {
	_ = p.command.Process.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.name, patience)
	}
	if !p.command.ProcessState.Success() {
		return fmt.Errorf("%s: %v", p.name, p.command.ProcessState)
	}
	return nil
}

// waitReady asks whether the server is ready until it says so.
func (p *process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		response, err := client.Get("http://" + p.http + "/v2/health/ready")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it ended before it was ready: %v", p.command.ProcessState)
		case <-ctx.Done():
			return errors.Join(errors.New("it did not become ready"), ctx.Err())
		}
	}
}

// freePorts finds ports without a listener.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
