// Command frontends measures the server under load over HTTP and gRPC. It compares the server with
// a bare Go handler in a separate process, which needs neither models nor Python and shows the cost
// of net/http and grpc-go alone. Both serve the same clients in turn. A second table is about
// requests with many responses. Run it in the root of the repository; it starts bin/nereid with
// examples/models.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// settings are the flags.
type settings struct {
	binary, repository string
	python             string
	seconds            float64 // per server and row
	rounds             int     // turns of each server per row
	protocols          string
	sizes, clients     measure.Numbers
	responses          measure.Numbers // to each request of a stream
	bare               bool            // this process is the bare server
}

func main() {
	s := settings{
		sizes: measure.Numbers{16, 64 << 10, 1 << 20, 16 << 20}, clients: measure.Numbers{1, 8, 32},
		responses: measure.Numbers{1, 200, 10000},
	}
	flag.StringVar(&s.binary, "binary", "bin/nereid", "the server")
	flag.StringVar(&s.repository, "repository", "examples/models", "served repository; must contain identity_fp32 and repeat_int32")
	flag.StringVar(&s.python, "python", "", "its interpreter; default the newest of .venvs, else python3 on PATH")
	flag.Float64Var(&s.seconds, "seconds", 2, "how long each row is measured with each server")
	flag.IntVar(&s.rounds, "rounds", 2, "turns that the servers take in each row")
	flag.StringVar(&s.protocols, "protocols", "HTTP,gRPC", "protocols")
	flag.Var(&s.sizes, "sizes", "bytes of the tensor, multiples of 4")
	flag.Var(&s.clients, "clients", "how many clients ask at once")
	flag.Var(&s.responses, "responses", "how many responses a request over a gRPC stream has")
	flag.BoolVar(&s.bare, "bare", false, "be the bare server; for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	run := s.run
	if s.bare {
		run = serveBare
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "frontends:", err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context) (err error) {
	nereid, err := startNereid(ctx, s)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	defer func() { err = errors.Join(err, nereid.stop()) }()
	bare, err := startBare(ctx)
	if err != nil {
		return fmt.Errorf("start the bare server: %w", err)
	}
	defer func() { err = errors.Join(err, bare.stop()) }()

	fmt.Printf("identity_fp32 (2 instances) beside a bare handler; %d processors, which the clients use too; %s\n\n",
		runtime.NumCPU(), runtime.Version())
	var table measure.Table
	table.Row("", "", "", "nereid", "p50", "p99", "CPU", "bare", "p50", "p99", "CPU", "rate", "CPU")
	table.Row("", "tensor", "clients", "req/s", "µs", "µs", "µs", "req/s", "µs", "µs", "µs", "/ bare", "/ bare")
	for protocol := range strings.SplitSeq(s.protocols, ",") {
		for _, size := range s.sizes {
			for _, clients := range s.clients {
				row := fmt.Sprintf("%s %s, %d clients", protocol, measure.Size(size), clients)
				ours, theirs, err := s.compare(ctx, sending(protocol, size), clients, nereid, bare)
				if err != nil {
					return fmt.Errorf("%s: %w", row, err)
				}
				showProgress(row)
				table.Row(protocol, measure.Size(size), clients,
					ours.Rate(), ours.Quantile(0.5), ours.Quantile(0.99), ours.CPUEach(),
					theirs.Rate(), theirs.Quantile(0.5), theirs.Quantile(0.99), theirs.CPUEach(),
					ours.Rate()/theirs.Rate(), float64(ours.CPUEach())/float64(theirs.CPUEach()))
			}
		}
	}
	showProgress("")
	if err := table.Write(os.Stdout); err != nil {
		return err
	}
	return s.compareStreams(ctx, nereid, bare)
}

// showProgress shows the progress on a terminal.
func showProgress(row string) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r%-40s\r", row)
	}
}

// compare gives both servers the same load in turn.
func (s *settings) compare(ctx context.Context, connect connector, clients int, nereid, bare *process) (ours, theirs measure.Times, err error) {
	turn := time.Duration(s.seconds / float64(s.rounds) * float64(time.Second))
	for range s.rounds {
		for _, server := range []struct {
			process *process
			times   *measure.Times
		}{{nereid, &ours}, {bare, &theirs}} {
			times, err := server.process.load(ctx, connect, clients, turn)
			if err != nil {
				return ours, theirs, fmt.Errorf("%s: %w", server.process.name, err)
			}
			server.times.Add(times)
		}
	}
	return ours, theirs, nil
}
