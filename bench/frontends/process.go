package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// patience is how long a server may take to start.
const patience = time.Minute

// process is a server under load.
type process struct {
	*measure.Process
	name       string
	http, grpc string // addresses
}

// startNereid starts the server and waits until it is ready.
func startNereid(ctx context.Context, s *settings) (*process, error) {
	python := s.python
	if python == "" {
		python = measure.NewestPython()
	}
	ports, err := measure.ReservePorts(2)
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
	started, err := measure.Start(command)
	if err != nil {
		return nil, err
	}
	p := &process{Process: started, name: "nereid", http: "127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1]}
	if err := p.waitReady(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// startBare starts this program as the bare server, which prints its addresses.
func startBare(ctx context.Context) (*process, error) {
	command := exec.Command(os.Args[0], "-bare")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(output)
	started, err := measure.Start(command)
	if err != nil {
		return nil, err
	}
	p := &process{Process: started, name: "bare server"}
	line, err := lines.ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) != 2 {
		return nil, errors.Join(fmt.Errorf("it printed %q, want two addresses", line), err, p.stop())
	}
	p.http, p.grpc = fields[0], fields[1]
	return p, ctx.Err()
}

// stop stops the server like an operator. It is an error if the server had ended before.
func (p *process) stop() error {
	if err := p.Stop(patience); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// waitReady polls the server until it is ready, or ctx ends.
func (p *process) waitReady(ctx context.Context) error {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	err := p.AwaitReady(patience, func() bool {
		response, err := client.Get("http://" + p.http + "/v2/health/ready")
		if err != nil {
			return ctx.Err() != nil
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK || ctx.Err() != nil
	})
	return errors.Join(err, ctx.Err())
}
