package replay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/recording"
)

const summary = `Sends recorded requests (nereid --record) to a running server, in order, and reports responses that differ from the recorded
ones.`

const (
	protocolHTTP = "http"
	protocolGRPC = "grpc"
)

// mostConcurrency limits --concurrency, because each record in flight is in memory with its
// responses.
const mostConcurrency = 1000

// options are the parsed command line.
type options struct {
	path, model          string
	key                  string // of the recording, or ""
	address, grpcAddress *client.Address
	protocol             string
	tolerance            float64
	ignored              ignored
	timeout              time.Duration
	concurrency          int // number of records in flight
	json                 bool
}

// ignored are names that are not compared.
type ignored struct {
	outputs, parameters map[string]bool
}

// Run runs the command line that follows `nereid replay`. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := command.UntilSignal()
	defer stop()
	flags := command.Flags("replay")
	o, err := parse(flags, args)
	if err == nil {
		err = o.run(ctx, stdout)
	}
	usage := func(w io.Writer) { command.Usage(w, "nereid replay DIRECTORY [options]", summary, flags) }
	return command.End("nereid replay", err, usage, stdout, stderr)
}

func parse(flags *flag.FlagSet, args []string) (*options, error) {
	o := &options{ignored: ignored{make(map[string]bool), make(map[string]bool)}}
	var address, grpcAddress string
	flags.StringVar(&address, "url", "localhost:8000", "`ADDRESS` of the server's HTTP endpoint: "+client.AddressHelp)
	flags.StringVar(&grpcAddress, "grpc-url", "localhost:8001", "`ADDRESS` of the server's gRPC endpoint, which is used for decoupled models")
	command.Choice(flags, &o.protocol, "protocol", protocolHTTP, "protocol for models that are not decoupled: http or grpc", protocolHTTP, protocolGRPC)
	flags.StringVar(&o.model, "model", "", "replay only requests to model `MODEL`")
	flags.Float64Var(&o.tolerance, "tolerance", 0, "allow floating-point elements to differ by `T` times the recorded value, or by T if that value is below 1")
	flags.Func("ignore-output", "ignore output `NAME`; may be repeated", set(o.ignored.outputs))
	flags.Func("ignore-parameter", "ignore response parameter `NAME`; may be repeated", set(o.ignored.parameters))
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "maximum wait for a response")
	flags.IntVar(&o.concurrency, "concurrency", 1, "send `N` requests at a time; those of one sequence keep their order")
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of lines")
	names, err := command.Parse(flags, args)
	if err != nil {
		return nil, err
	}
	o.path, err = command.One(names, "the directory with records")
	switch {
	case err != nil:
		return nil, err
	case o.protocol != protocolHTTP && o.protocol != protocolGRPC:
		return nil, command.Usagef("--protocol is %q, want http or grpc", o.protocol)
	case !(o.tolerance >= 0) || math.IsInf(o.tolerance, 0):
		return nil, command.Usagef("--tolerance is %v, want 0 or more", o.tolerance)
	case o.concurrency < 1 || o.concurrency > mostConcurrency:
		return nil, command.Usagef("--concurrency is %d, want 1 to %d", o.concurrency, mostConcurrency)
	case o.timeout <= 0:
		return nil, command.Usagef("--timeout is %s, want more than 0", o.timeout)
	}
	if _, err := os.Stat(o.path); err != nil {
		return nil, command.Usagef("%s does not exist: want a directory with records", o.path)
	}
	o.key = recording.Key(o.path)
	if o.address, err = client.ParseAddress(address); err != nil {
		return nil, command.Usagef("--url is %v", err)
	}
	if o.grpcAddress, err = client.ParseAddress(grpcAddress); err != nil {
		return nil, command.Usagef("--grpc-url is %v", err)
	}
	return o, nil
}

func set(names map[string]bool) func(string) error {
	return func(name string) error {
		if name == "" {
			return errors.New("want a name")
		}
		names[name] = true
		return nil
	}
}

// sender sends requests to a server. An error means that the server did not answer; its error
// replies are answers.
type sender interface {
	send(ctx context.Context, r *recording.Record) ([]recording.Message, error)
	close()
}

// unreachableError ends a replay, because later requests would also fail.
type unreachableError struct {
	address *client.Address
	err     error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("no server answers at %s: %v", e.address, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// longError is the error for an answer that is much longer than the recorded one.
type longError struct{ most int64 }

func (e *longError) Error() string {
	return fmt.Sprintf("the response has more than %d bytes, far more than the recorded one", e.most)
}

// The approximate overhead of an answer, or of one of its tensors, and of a parameter, in bytes.
const (
	perAnswer    = 512
	perParameter = 64
)

// mostAnswered limits the bytes read as answers to a record: twice the recorded size, plus room for
// differences.
func mostAnswered(r *recording.Record) int64 {
	most := int64(64 << 20)
	for i := range r.Answers {
		most += 2 * perAnswer
		for j := range r.Answers[i].Tensors {
			t := &r.Answers[i].Tensors[j]
			if most += 2 * (perAnswer + t.Size()); t.Redacted {
				most += 1 << 30 // the recorded size is unknown
			}
		}
	}
	return most
}

// run sends all records and reports.
func (o *options) run(ctx context.Context, stdout io.Writer) error {
	files, err := recording.Files(o.path)
	if err != nil {
		return err
	}
	senders := newSenders(o)
	defer senders.close()
	var outcomes []*outcome // in the order of the files; the sending goroutine fills each, and they are read after all have ended; bound: the records
	sent := func(o *outcome) bool { return o.Result != "" }
	flight := newFlight(ctx, o.concurrency)
	for _, file := range files {
		one := &outcome{File: file}
		r, err := recording.Open(file)
		if err != nil {
			one.Result, one.Differences = resultNotSent, []string{strings.TrimPrefix(err.Error(), file+": ")}
			outcomes = append(outcomes, one)
			continue
		}
		if o.model != "" && r.Model != o.model {
			continue
		}
		outcomes = append(outcomes, one)
		if !flight.start(r, func(ctx context.Context) error { return o.replay(ctx, senders, one, r) }) {
			break
		}
	}
	err = flight.wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	report := &report{Requests: []*outcome{}}
	for _, one := range outcomes {
		if sent(one) {
			report.add(one)
		}
	}
	if err != nil { // the results so far are still reported
		if report.Same+report.Different > 0 {
			err = errors.Join(err, report.write(stdout, o.json))
		}
		return err
	}
	if len(report.Requests) == 0 {
		where := filepath.Clean(o.path)
		if o.model != "" {
			where += " of model " + o.model
		}
		return errors.New("there are no records in " + where + ": create them by running a server with --record DIRECTORY")
	}
	if err = report.write(stdout, o.json); err == nil && report.Same < len(report.Requests) {
		err = command.ErrTrouble
	}
	return err
}

// replay sends one request and compares the answers. It fills found if there is a result; an error
// is an *unreachableError.
func (o *options) replay(ctx context.Context, senders *senders, found *outcome, r *recording.Record) error {
	found.Model = r.Model
	redacted, err := fill(r)
	if err != nil {
		found.Result, found.Differences = resultNotSent, []string{err.Error()}
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	answers, err := senders.of(r).send(limited, r)
	var unreachable *unreachableError
	var long *longError
	switch {
	case errors.As(err, &long):
		found.Result, found.Differences = resultDifferent, []string{long.Error()}
		return nil
	case errors.As(err, &unreachable):
		return unreachable
	case ctx.Err() != nil: // the replay ends
		return nil
	case err != nil:
		found.Result, found.Differences = resultNotSent, []string{infer.Cut(err.Error(), infer.MaxEcho)}
		return nil
	}
	c := comparison{tolerance: o.tolerance, ignored: o.ignored, namesAlone: redacted}
	found.Result = resultSame
	if found.Differences = c.compare(r.Answers, answers); len(found.Differences) > 0 {
		found.Result = resultDifferent
	}
	return nil
}

// senders holds the senders of both protocols. Neither connects before it sends.
type senders struct {
	options    *options
	http, grpc sender
}

func newSenders(o *options) *senders { return &senders{options: o, http: newHTTP(o), grpc: newGRPC(o)} }

// of returns the sender for a record.
func (s *senders) of(r *recording.Record) sender {
	if !r.Decoupled && s.options.protocol == protocolHTTP {
		return s.http
	}
	return s.grpc
}

func (s *senders) close() {
	s.http.close()
	s.grpc.close()
}
