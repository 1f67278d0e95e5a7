package bench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
)

// options are the parsed command line.
type options struct {
	model       string
	version     string
	address     *client.Address
	protocol    string // http, grpc or stream
	levels      []level
	duration    time.Duration
	warmUp      time.Duration
	batch       int64
	inputs      map[string]string // by name: random, zero, or @ and a file with the bytes
	shapes      map[string][]int64
	data        string // in perf_analyzer's format
	record      string // a directory of recorded requests
	textLength  int
	memory      string // none or system
	outputBytes int64
	sequence    int
	timeout     time.Duration
	maxReply    int // bytes, over gRPC
	json        string
	compare     string
}

// level is one amount of load: concurrent callers, or requests per second.
type level struct {
	Concurrency int     `json:"concurrency"`
	Rate        float64 `json:"rate,omitempty"`
}

func (l level) String() string {
	if l.Rate > 0 {
		return strconv.FormatFloat(l.Rate, 'f', -1, 64) + "/s"
	}
	return strconv.Itoa(l.Concurrency)
}

const (
	protocolHTTP   = "http"
	protocolGRPC   = "grpc"
	protocolStream = "stream"
)

// mostCallers limits the number of connections.
const mostCallers = 10_000

// parse reads the command line.
func parse(flags *flag.FlagSet, args []string) (*options, error) {
	o := &options{inputs: make(map[string]string), shapes: make(map[string][]int64)}
	var address, concurrency, rate string
	flags.StringVar(&address, "url", "", "`ADDRESS` of the server: "+client.AddressHelp+" (default localhost:8000 for HTTP, localhost:8001 for gRPC)")
	command.Choice(flags, &o.protocol, "protocol", protocolHTTP, "http, grpc, or stream (gRPC streams)", protocolHTTP, protocolGRPC, protocolStream)
	flags.StringVar(&o.version, "model-version", "", "`VERSION` of the model (default: chosen by the server)")
	flags.StringVar(&concurrency, "concurrency", "1", "number `N` of concurrent requests, or START:END:STEP for one measurement per level")
	flags.StringVar(&rate, "rate", "", "number `N` of requests per second, sent whether or not earlier ones have a response, or START:END:STEP")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "duration of the measurement of each level")
	flags.DurationVar(&o.warmUp, "warm-up", time.Second, "time to run each level before its measurement")
	flags.Int64Var(&o.batch, "batch", 1, "batch size, the first dimension of all tensors")
	flags.Func("input", "values of an input: `NAME=random`, NAME=zero, or NAME=@FILE with the tensor's bytes; may be repeated (default random)", o.addInput)
	flags.Func("shape", "sizes of an input's variable dimensions, `NAME:DIMS`, such as TEXT:1,16, without the batch dimension; may be repeated (default 1)", o.addShape)
	flags.StringVar(&o.data, "data", "", "`FILE` of requests in perf_analyzer's JSON format, which are sent in turn")
	flags.StringVar(&o.record, "input-record", "", "`DIRECTORY` of recorded requests (nereid --record); those to this model provide the inputs, in turn")
	flags.IntVar(&o.textLength, "string-length", 128, "bytes per random element of a BYTES input")
	command.Choice(flags, &o.memory, "shared-memory", "none", "none, or system: pass tensors in system shared memory, if the server runs on this machine", "none", "system")
	flags.Int64Var(&o.outputBytes, "output-shared-memory-size", 100<<10, "bytes per output in shared memory")
	flags.IntVar(&o.sequence, "sequence-length", 0, "requests per sequence; 0 means 20 for models with sequence batching, unless they have iterative_sequence, and no sequences otherwise")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "maximum wait for a response; after that the request fails and its connection is closed")
	flags.IntVar(&o.maxReply, "max-reply-bytes", 256<<20, "maximum size of a gRPC response, in `BYTES`. Each concurrent request keeps its response in memory; over HTTP it is not kept")
	flags.StringVar(&o.json, "json", "", "write the results as JSON to `FILE`; - writes them to standard output instead of the table")
	flags.StringVar(&o.compare, "compare", "", "compare with earlier results in `FILE`, written by --json")
	names, err := command.Parse(flags, args)
	if err != nil {
		return nil, err
	}
	if o.model, err = command.One(names, "the name of the model"); err != nil {
		return nil, err
	}
	if err := o.check(address, concurrency, rate); err != nil {
		return nil, &command.UsageError{Text: err.Error()}
	}
	return o, nil
}

func (o *options) check(address, concurrency, rate string) (err error) {
	switch o.protocol {
	case protocolHTTP:
		address = cmp.Or(address, "localhost:8000")
	case protocolGRPC, protocolStream:
		address = cmp.Or(address, "localhost:8001")
	default:
		return fmt.Errorf("--protocol is %q, want http, grpc or stream", o.protocol)
	}
	if o.address, err = client.ParseAddress(address); err != nil {
		return fmt.Errorf("--url is %w", err)
	}
	if o.memory != "none" && o.memory != "system" {
		return fmt.Errorf("--shared-memory is %q, want none or system", o.memory)
	}
	if o.record != "" && (o.data != "" || len(o.inputs) > 0 || len(o.shapes) > 0 || o.batch > 1) {
		return errors.New("--input-record provides complete requests: leave out --data, --input, --shape and --batch")
	}
	if o.version != "" {
		if n, err := strconv.ParseInt(o.version, 10, 64); err != nil || n < 1 {
			return fmt.Errorf("--model-version is %q, want a number above 0", o.version)
		}
	}
	for _, positive := range []struct {
		name  string
		value int64
	}{
		{"duration", int64(o.duration)}, {"timeout", int64(o.timeout)}, {"batch", o.batch},
		{"string-length", int64(o.textLength)}, {"output-shared-memory-size", o.outputBytes}, {"max-reply-bytes", int64(o.maxReply)},
	} {
		if positive.value <= 0 {
			return fmt.Errorf("--%s is %d, want more than 0", positive.name, positive.value)
		}
	}
	if o.warmUp < 0 {
		return fmt.Errorf("--warm-up is %s, want 0 or more", o.warmUp)
	}
	if o.sequence < 0 {
		return fmt.Errorf("--sequence-length is %d, want 0 or more", o.sequence)
	}
	if rate != "" {
		rates, err := numbers(rate)
		if err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
		for _, r := range rates {
			o.levels = append(o.levels, level{Rate: r})
		}
		return nil
	}
	counts, err := numbers(concurrency)
	if err != nil {
		return fmt.Errorf("--concurrency: %w", err)
	}
	for _, n := range counts {
		if n != float64(int(n)) || n > mostCallers {
			return fmt.Errorf("--concurrency is %v, want a whole number from 1 to %d", n, mostCallers)
		}
		o.levels = append(o.levels, level{Concurrency: int(n)})
	}
	return nil
}

// numbers parses N or START:END:STEP.
func numbers(text string) ([]float64, error) {
	parts := strings.Split(text, ":")
	values := make([]float64, len(parts))
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v > 0 && v <= 1e9) {
			return nil, fmt.Errorf("%q is not a number above 0", part)
		}
		values[i] = v
	}
	switch len(values) {
	case 1:
		return values, nil
	case 2:
		values = append(values, 1)
	case 3:
	default:
		return nil, fmt.Errorf("%q is neither N nor START:END:STEP", text)
	}
	var all []float64
	for v := values[0]; v <= values[1]; v += values[2] {
		if all = append(all, v); len(all) > 1000 {
			return nil, fmt.Errorf("%q has more than 1000 levels", text)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%q ends before it begins", text)
	}
	return all, nil
}

func (o *options) addInput(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" || value != random && value != zero && !strings.HasPrefix(value, "@") {
		return errors.New("want NAME=random, NAME=zero or NAME=@FILE")
	}
	o.inputs[name] = value
	return nil
}

func (o *options) addShape(text string) error {
	name, dims, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		return errors.New("want NAME:DIM,DIM,…")
	}
	var shape []int64
	for part := range strings.SplitSeq(dims, ",") {
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a dimension", part)
		}
		shape = append(shape, d)
	}
	o.shapes[name] = shape
	return nil
}
