package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// callsEach is the number of requests per gRPC connection.
const callsEach = 100

// measureRequests queues requests for a model until all have arrived, and then lets it answer them
// in batches of at most 64.
func (s *settings) measureRequests(r *report) error {
	var table measure.Table
	table.Row("requests", "server", "wait, server KiB each", "CPU µs each until they wait", "index ms meanwhile", "answered", "CPU µs each", "s")
	for _, v := range r.rivals {
		row, err := s.withRequests(v, s.requests)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		table.Row(append([]any{s.requests, v.name}, row...)...)
	}
	return r.print("Requests that wait for one model", &table)
}

func (s *settings) withRequests(v rival, n int) (row []any, err error) {
	root, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	gate := filepath.Join(root, "gate")
	repository := filepath.Join(root, "models")
	parameters := fmt.Sprintf("dynamic_batching { }\nparameters { key: \"GATE\" value { string_value: %q } }\n", gate)
	if err := writeModel(repository, "gated", gated, fmt.Sprintf(config, 64, 1, parameters)); err != nil {
		return nil, err
	}
	p, err := v.start(repository, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if _, _, ended := p.stop(); err == nil {
			err = ended
		}
	}()
	before, err := p.look()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	var answered atomic.Int64
	failures := make(chan error, n) // one of each request
	for first := 0; first < n; first += callsEach {
		conn, err := dial(p)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		client := grpcservice.NewGRPCInferenceServiceClient(conn)
		for range min(callsEach, n-first) {
			all.Go(func() {
				if err := inferGRPC(ctx, client); err != nil {
					failures <- err
					return
				}
				answered.Add(1)
			})
		}
	}
	// A batch of up to 64 is executing; the others wait.
	if err := p.waitPending(n-64, failures); err != nil {
		cancel()
		return nil, err
	}
	waiting, err := p.look()
	if err != nil {
		return nil, err
	}
	index, err := p.repeat(s.span/10, func() ([]byte, error) { return p.want(http.MethodPost, p.http, "/v2/repository/index", "") })
	if err != nil {
		return nil, err
	}
	last, err := p.look()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		return nil, err
	}
	all.Wait()
	took := time.Since(began)
	after, err := p.look()
	if err != nil {
		return nil, err
	}
	var failed error
	for len(failures) > 0 {
		failed = <-failures
	}
	if failed != nil {
		return nil, fmt.Errorf("%d of %d requests were answered: %w", answered.Load(), n, failed)
	}
	each := time.Duration(n)
	return []any{kib(int(waiting.server-before.server) / n), microseconds((waiting.cpu - before.cpu) / each), milliseconds(index.wall),
		answered.Load(), microseconds((after.cpu - last.cpu) / each), seconds(took)}, nil
}

var pending = regexp.MustCompile(`(?m)^nv_inference_pending_request_count\{[^}]*model="gated"[^}]*\} (\d+)`)

// waitPending waits until at least that many requests wait for the gated model.
func (p *server) waitPending(least int, failures chan error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		page, err := p.want(http.MethodGet, p.metrics, "/metrics", "")
		if err != nil {
			return err
		}
		found := pending.FindSubmatch(page)
		if found == nil {
			return errors.New("the metrics have no nv_inference_pending_request_count of the model gated")
		}
		if n, _ := strconv.Atoi(string(found[1])); n >= least {
			return nil
		}
		select {
		case err := <-failures:
			return err
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s requests wait after %v, want %d", found[1], patience, least)
		}
	}
}

func inferGRPC(ctx context.Context, client grpcservice.GRPCInferenceServiceClient) error {
	var tensor []byte
	for i := range 4 {
		tensor = binary.LittleEndian.AppendUint32(tensor, math.Float32bits(float32(i)))
	}
	answer, err := client.ModelInfer(ctx, &kserve.ModelInferRequest{
		ModelName: "gated", Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "FP32", Shape: []int64{1, 4}}}, RawInputContents: [][]byte{tensor},
	})
	if err == nil && (len(answer.RawOutputContents) != 1 || string(answer.RawOutputContents[0]) != string(tensor)) {
		err = fmt.Errorf("the answer has %x, want %x", answer.RawOutputContents, tensor)
	}
	return err
}
