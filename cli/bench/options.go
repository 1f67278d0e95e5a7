package bench

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
)

// options are the parsed command line.
type options struct {
	model       string
	version     string
	url         string
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
	var concurrency, rate string
	flags.StringVar(&o.url, "url", "", "`ADDRESS` of the server, https:// before it for TLS; localhost:8000 for HTTP and localhost:8001 for gRPC unless it is given")
	command.Choice(flags, &o.protocol, "protocol", protocolHTTP, "http, grpc, or stream: requests of one caller share a gRPC stream", protocolHTTP, protocolGRPC, protocolStream)
	flags.StringVar(&o.version, "model-version", "", "`VERSION` of the model; the server's choice unless it is given")
	flags.StringVar(&concurrency, "concurrency", "1", "`N`, requests that are under way at a time; or START:END:STEP, measured one after another")
	flags.StringVar(&rate, "rate", "", "`N`, requests per second, whether or not earlier ones have been answered; or START:END:STEP")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "how long each level is measured")
	flags.DurationVar(&o.warmUp, "warm-up", time.Second, "how long each level runs before it is measured")
	flags.Int64Var(&o.batch, "batch", 1, "first dimension of all tensors, for models that batch")
	flags.Func("input", "`NAME=random`, NAME=zero, or NAME=@FILE with the tensor's bytes; may be repeated. Random unless it is given", o.addInput)
	flags.Func("shape", "`NAME:DIMS`, such as TEXT:1,16, without the batch; for inputs with dimensions of any size, which are 1 unless it is given", o.addShape)
	flags.StringVar(&o.data, "data", "", "`FILE` of requests in the JSON form of perf_analyzer; they are sent in turn")
	flags.StringVar(&o.record, "input-record", "", "`DIRECTORY` of recorded requests (nereid --record); the inputs of those of this model are sent in turn")
	flags.IntVar(&o.textLength, "string-length", 128, "bytes of each random element of a BYTES input")
	command.Choice(flags, &o.memory, "shared-memory", "none", "none, or system: tensors lie in shared memory that the server is told of; it has to run on this machine", "none", "system")
	flags.Int64Var(&o.outputBytes, "output-shared-memory-size", 100<<10, "bytes for each output in shared memory")
	flags.IntVar(&o.sequence, "sequence-length", 0, "requests of each sequence; 0 is 20 for models with sequence batching, and no sequences for others and for those with iterative_sequence")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "after which a request that is not answered has failed, and its connection is given up")
	flags.IntVar(&o.maxReply, "max-reply-bytes", 256<<20, "`BYTES` that a reply over gRPC may have, which it takes in memory for each request under way; over HTTP replies are not kept")
	flags.StringVar(&o.json, "json", "", "write the results as JSON to `FILE`; - is the standard output, instead of the table")
	flags.StringVar(&o.compare, "compare", "", "compare with the results in `FILE`, which --json has written")
	names, err := command.Parse(flags, args)
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, command.Usagef("got %d models, want the name of one", len(names))
	}
	o.model = names[0]
	if err := o.check(concurrency, rate); err != nil {
		return nil, &command.UsageError{Text: err.Error()}
	}
	return o, nil
}

func (o *options) check(concurrency, rate string) (err error) {
	switch o.protocol {
	case protocolHTTP:
		o.url = address(o.url, "localhost:8000")
	case protocolGRPC, protocolStream:
		o.url = address(o.url, "localhost:8001")
	default:
		return fmt.Errorf("--protocol is %q, want http, grpc or stream", o.protocol)
	}
	if o.memory != "none" && o.memory != "system" {
		return fmt.Errorf("--shared-memory is %q, want none or system", o.memory)
	}
	if o.record != "" && (o.data != "" || len(o.inputs) > 0 || len(o.shapes) > 0 || o.batch > 1) {
		return errors.New("--input-record has whole requests: leave out --data, --input, --shape and --batch")
	}
	if o.version != "" {
		if n, err := strconv.ParseInt(o.version, 10, 64); err != nil || n < 1 {
			return fmt.Errorf("--model-version is %q, want a number from 1 on", o.version)
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

// address removes the http:// that users may write before an address; https:// stays.
func address(given, otherwise string) string {
	given = strings.TrimSuffix(strings.TrimPrefix(given, "http://"), "/")
	if given == "" {
		return otherwise
	}
	return given
}

// secure is the prefix of addresses that use TLS.
const secure = "https://"

// server returns host and port of the server, and its TLS settings, or nil. The certificate is
// verified with the system's roots, or with those in SSL_CERT_FILE.
func (o *options) server() (address string, by *tls.Config) {
	address, is := strings.CutPrefix(o.url, secure)
	if !is {
		return address, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return address, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
}

// numbers parses N or START:END:STEP.
func numbers(text string) ([]float64, error) {
	parts := strings.Split(text, ":")
	values := make([]float64, len(parts))
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v > 0 && v <= 1e9) {
			return nil, fmt.Errorf("%q is no number above 0", part)
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
			return fmt.Errorf("%q is no dimension", part)
		}
		shape = append(shape, d)
	}
	o.shapes[name] = shape
	return nil
}
