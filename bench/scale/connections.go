package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// openers is the number of connections opened at once.
const openers = 16

// measureConnections opens connections that send one request and then stay idle, while another
// connection keeps sending.
func (s *settings) measureConnections(r *report) error {
	root, err := makeRepository(1, 1)
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	var table measure.Table
	table.Row("connections", "server", "open, CPU µs each", "server KiB each", "descriptors", "idle, CPU ms/s", "infer p50 µs", "p99 µs", "CPU µs", "server PSS MiB after they are closed", "before")
	for _, protocol := range []struct {
		name string
		open func(*server) (io.Closer, error)
	}{{"HTTP", openHTTP}, {"gRPC", openGRPC}} {
		for _, v := range r.rivals {
			p, err := v.start(root, nil)
			if err != nil {
				return err
			}
			row, err := s.withConnections(p, s.connections, protocol.open)
			if _, _, ended := p.stop(); err == nil {
				err = ended
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, protocol.name, err)
			}
			table.Row(append([]any{fmt.Sprint(s.connections, " ", protocol.name), v.name}, row...)...)
		}
	}
	return r.print("Idle connections", &table)
}

// withConnections returns the cost of idle connections.
func (s *settings) withConnections(p *server, n int, open func(*server) (io.Closer, error)) (row []any, err error) {
	if err := p.infer(modelName(0)); err != nil {
		return nil, err
	}
	before, err := p.look()
	if err != nil {
		return nil, err
	}
	conns := make([]io.Closer, n)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	if err := atOnce(n, openers, func(i int) (err error) {
		conns[i], err = open(p)
		return err
	}); err != nil {
		return nil, err
	}
	opened, err := p.look()
	if err != nil {
		return nil, err
	}
	idle, err := s.watchIdle(p)
	if err != nil {
		return nil, err
	}
	with, err := p.look()
	if err != nil {
		return nil, err
	}
	if with.descriptors < before.descriptors+n {
		return nil, fmt.Errorf("the server has %d descriptors, had %d before: it has closed some of %d connections", with.descriptors, before.descriptors, n)
	}
	pids, err := measure.Tree(p.PID())
	if err != nil {
		return nil, err
	}
	times, err := measure.WarmRounds(s.span, pids, func() error { return p.infer(modelName(0)) })
	if err != nil {
		return nil, err
	}
	for i, conn := range conns {
		_ = conn.Close()
		conns[i] = nil
	}
	after, err := p.look()
	for deadline := time.Now().Add(30 * time.Second); err == nil && after.descriptors > before.descriptors+8; after, err = p.look() {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the server has %d descriptors half a minute after %d connections were closed, had %d before", after.descriptors, n, before.descriptors)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	return []any{
		microseconds((opened.cpu - before.cpu) / time.Duration(n)), kib(int(with.server-before.server) / n), with.descriptors,
		perSecond(idle, s.idle), microseconds(times.Quantile(0.5)), microseconds(times.Quantile(0.99)), microseconds(times.CPUEach()), mib(after.server), mib(before.server),
	}, nil
}

// atOnce calls do n times, at most most of them concurrently, and returns the first error.
func atOnce(n, most int, do func(int) error) error {
	var all sync.WaitGroup
	next, errs := make(chan int), make(chan error, most) // one error of each worker
	for range most {
		all.Go(func() {
			var failed error
			for i := range next {
				if failed == nil {
					failed = do(i)
				}
			}
			errs <- failed
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(errs)
	var failed error
	for err := range errs {
		failed = errors.Join(failed, err)
	}
	return failed
}

// openHTTP opens a connection and completes one request on it.
func openHTTP(p *server) (io.Closer, error) {
	conn, err := net.Dial("tcp", p.http)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, "GET /v2/health/live HTTP/1.1\r\nHost: scale\r\n\r\n")
	if err == nil {
		var response *http.Response
		if response, err = http.ReadResponse(bufio.NewReaderSize(conn, 512), nil); err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// openGRPC opens a connection and completes one request on it.
func openGRPC(p *server) (io.Closer, error) {
	conn, err := dial(p)
	if err != nil {
		return nil, err
	}
	if _, err := grpcservice.NewGRPCInferenceServiceClient(conn).ServerLive(context.Background(), &kserve.ServerLiveRequest{}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// dial opens a gRPC connection that needs little memory in this process.
func dial(p *server) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(0))
}
