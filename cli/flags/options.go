package flags

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/devices"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/server/connections"
)

// Options is a parsed command line. Defaults returns the values of flags that are not given.
type Options struct {
	nereid.Options // completed by ServerOptions

	Log             logs.Options
	MetricsSettings []Setting // --metrics-config, in order
	SafePorts       [2]int    // --sagemaker-safe-port-range, for the other endpoints; both 0: any
	Cache           CacheOptions
	Tracing         TraceOptions

	// Memory and Threads are parsed and checked but have no effect. The start-up table shows some
	// of them.
	Memory  MemoryOptions
	Threads ThreadOptions

	defaultRepository string // used without --model-repository

	// NoEffect names the given flags that have no effect. Each gets a warning.
	NoEffect []string
	// Truncated has warnings about numbers of which, as in Triton, only the beginning counts.
	Truncated []string
}

// Setting is one "<key>=<value>".
type Setting struct {
	Key, Value string
}

// TraceOptions are the start values of the trace settings.
type TraceOptions struct {
	Mode   string   // "triton" or "opentelemetry"
	Levels []string // OFF, TIMESTAMPS, TENSORS, in the order given; empty is OFF
	Rate   int64
	Count  int64 // -1 is no limit
	// Settings are the settings by mode, such as "file" of "triton", in order.
	Settings map[string][]Setting
}

// CacheOptions are about the response cache.
type CacheOptions struct {
	Settings  map[string]map[string]string // --cache-config, by cache and key; empty is no cache
	Directory string
}

// MemoryOptions are about memory and devices.
type MemoryOptions struct {
	CUDAPoolBytes           map[int]uint64 // by device
	CUDAVirtualAddressBytes map[int]uint64
	EnablePeerAccess        bool
}

// ThreadOptions are numbers of threads, of pooled objects, and of pings.
type ThreadOptions struct {
	HTTP                int // --http-thread-count
	GRPCInfer           int // --grpc-infer-thread-count
	SageMaker           int // --sagemaker-thread-count
	VertexAI            int // --vertex-ai-thread-count
	AllocationPoolSize  int // --grpc-infer-allocation-pool-size
	BufferManager       int // --buffer-manager-thread-count
	MaxPingsWithoutData int // --grpc-http2-max-pings-without-data
	MaxPingStrikes      int // --grpc-http2-max-ping-strikes
}

// Defaults returns the options of an empty command line. getenv is os.Getenv.
func Defaults(getenv func(string) string) *Options {
	o := &Options{
		Options: nereid.Defaults(),
		Log:     logs.Options{Info: true, Warning: true, Error: true},
		Cache:   CacheOptions{Directory: "/opt/tritonserver/caches"},
		Tracing: TraceOptions{Mode: "triton", Rate: 1000, Count: -1},
		Memory:  MemoryOptions{EnablePeerAccess: true},
		Threads: ThreadOptions{HTTP: 8, GRPCInfer: 2, SageMaker: 8, VertexAI: 8, AllocationPoolSize: 8, MaxPingsWithoutData: 2, MaxPingStrikes: 2},
	}
	if devices.Found(getenv) {
		o.Backends.MinComputeCapability = devices.DefaultCapability
	}
	o.Page = nereid.PageOptions{Allow: true, Address: "127.0.0.1", Port: nereid.PagePort, Dispensable: true}
	o.SageMaker.Port, o.SageMaker.DefaultModel = 8080, getenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME")
	o.SageMaker.LivePing, o.SageMaker.InferenceType = getenv("SAGEMAKER_TRITON_PING_MODE") == "live", getenv("SAGEMAKER_TRITON_INFERENCE_TYPE")
	o.VertexAI.Allow, o.VertexAI.Port = getenv("AIP_MODE") == "PREDICTION", vertexPort(getenv)
	o.VertexAI.PredictRoute, o.VertexAI.HealthRoute = getenv("AIP_PREDICT_ROUTE"), getenv("AIP_HEALTH_ROUTE")
	if o.VertexAI.Allow {
		o.HTTP.Allow, o.GRPC.Allow = false, false
	}
	o.Repository.Mounts = make(map[string]string)
	for scheme, variable := range repository.MountVariables() {
		o.Repository.Mounts[scheme] = getenv(variable)
	}
	if stored := getenv("AIP_STORAGE_URI"); stored != "" {
		o.defaultRepository = stored
	}
	o.Delay = nereid.DelayOptions{
		Requests: countFrom(getenv("TRITONSERVER_DELAY_SCHEDULER")), Backlog: countFrom(getenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER")),
	}
	return o
}

// countFrom parses an environment variable. It returns 0 if the value is not a number.
func countFrom(value string) int {
	n, err := parseInt(value)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func vertexPort(getenv func(string) string) int {
	if port, err := parseInt(getenv("AIP_HTTP_PORT")); err == nil {
		return port
	}
	return 8080
}

// finish sets the options that depend on several flags and rejects contradictions.
// twoCaches is true if --response-cache-byte-size and --cache-config both describe the cache.
func (o *Options) finish(twoCaches bool) error {
	if len(o.Repository.Paths) == 0 && o.defaultRepository != "" {
		o.Repository.Paths = []string{o.defaultRepository}
	}
	slices.Sort(o.Repository.Paths)
	o.Repository.Paths = slices.Compact(o.Repository.Paths)
	slices.Sort(o.Repository.StartupModels)
	o.Repository.StartupModels = slices.Compact(o.Repository.StartupModels)
	if o.Metrics.Address == "" {
		o.Metrics.Address = o.OtherAddress()
	}
	if len(o.Repository.StartupModels) > 0 && o.Repository.Control != nereid.ControlExplicit {
		return errors.New("Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
	}
	if twoCaches {
		return errors.New("Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. " +
			"Please provide one or the other.")
	}
	if o.HTTPS.Allow && (o.HTTPS.CertFile == "" || o.HTTPS.KeyFile == "") {
		return errors.New("Error: Use of '--https-port' requires '--https-server-cert' and '--https-server-key' as well.")
	}
	if tls := &o.GRPC.TLS; o.GRPC.Allow && (tls.Enabled || tls.Mutual) {
		switch {
		case tls.CertFile == "" || tls.KeyFile == "":
			return errors.New("Error: Use of '--grpc-use-ssl' requires '--grpc-server-cert' and '--grpc-server-key' as well.")
		case tls.Mutual && tls.RootFile == "":
			return errors.New("Error: Use of '--grpc-use-ssl-mutual' requires '--grpc-root-cert' as well.")
		}
	}
	return cmp.Or(o.checkPorts(), o.checkRange())
}

const sageMaker = "SageMaker"

// Endpoint is one address on which the server listens.
type Endpoint struct {
	Name    string // as in Triton's errors
	On      bool
	Address string
	Port    int
	Flag    string // the flag that sets the port, without dashes
	Reuse   bool   // other programs may listen on the port
}

// Endpoints returns all endpoints, including disabled ones.
func (o *Options) Endpoints() []Endpoint {
	return []Endpoint{
		{"HTTP", o.HTTP.Allow, o.HTTP.Address, o.HTTP.Port, "http-port", o.HTTP.ReusePort},
		{"HTTPS", o.HTTPS.Allow, cmp.Or(o.HTTPS.Address, o.OtherAddress()), o.HTTPS.Port, "https-port", false},
		{"GRPC", o.GRPC.Allow, o.GRPC.Address, o.GRPC.Port, "grpc-port", o.GRPC.ReusePort},
		{"metrics", o.Metrics.Allow, o.Metrics.Address, o.Metrics.Port, "metrics-port", false},
		{sageMaker, o.SageMaker.Allow, nereid.PlatformAddress, o.SageMaker.Port, "sagemaker-port", false},
		{"Vertex AI", o.VertexAI.Allow, nereid.PlatformAddress, o.VertexAI.Port, "vertex-ai-port", false},
		{"OpenAI", o.OpenAI.Allow, cmp.Or(o.OpenAI.Address, o.OtherAddress()), o.OpenAI.Port, "openai-port", false},
		{"page", o.Page.Allow && !o.Page.Dispensable, o.Page.Address, o.Page.Port, "http-ui-port", false},
	}
}

// checkPorts rejects two endpoints at one address, and endpoints outside SageMaker's safe port
// range.
func (o *Options) checkPorts() error {
	endpoints := o.Endpoints()
	for i, a := range endpoints {
		for _, b := range endpoints[i+1:] {
			_, unix := connections.UnixPath(a.Address)
			if a.On && b.On && a.Address == b.Address && (a.Port == b.Port || unix) {
				return fmt.Errorf("The server cannot listen to %s requests and %s requests at the same address and port %s",
					a.Name, b.Name, connections.JoinHostPort(a.Address, a.Port))
			}
		}
		if first, last := o.SafePorts[0], o.SafePorts[1]; o.SageMaker.Allow && o.SafePorts != [2]int{} && a.On && a.Name != sageMaker &&
			a.Address == nereid.PlatformAddress && (a.Port < first || a.Port > last) {
			return fmt.Errorf("The server cannot listen to %s requests at port %d, allowed port range is [%d, %d]", a.Name, a.Port, first, last)
		}
	}
	return nil
}

// checkRange rejects invalid port numbers.
func (o *Options) checkRange() error {
	for _, e := range o.Endpoints() {
		if e.On && (e.Port < 0 || e.Port > 65535) {
			return fmt.Errorf("--%s is %d, want a port from 0 to 65535", e.Flag, e.Port)
		}
	}
	return nil
}

// ServerOptions returns the options of the server: the flags, the log and the consoles. It rejects
// bad settings of the metrics, the backends and the cache.
func (o *Options) ServerOptions(settings *logs.Settings, getenv func(string) string, log zerolog.Logger, stdout, stderr io.Writer) (nereid.Options, error) {
	all := o.Options
	all.Logger, all.Logging, all.Stdout, all.Stderr = log, logs.Control{Settings: settings}, stdout, stderr
	all.SoleParent, all.LimitGoHeap = true, getenv("GOMEMLIMIT") == ""
	all.Trace = o.Tracing.config(getenv)
	// Unless it is explicitly enabled, the page needs a plain HTTP endpoint, and it grants nothing
	// that the endpoint restricts.
	all.Page.Allow = o.Page.Allow && (o.HTTP.Allow || !o.Page.Dispensable)
	var err error
	if err = o.applyMetricsSettings(&all.Metrics.Series, log); err != nil {
		return all, err
	}
	if err = o.checkBackends(); err != nil {
		return all, err
	}
	all.CacheBytes, err = cache.ParseSettings(o.Cache.Settings, o.Cache.Directory, budget.Limit())
	return all, err
}

// applyMetricsSettings applies --metrics-config to c.
func (o *Options) applyMetricsSettings(c *metrics.Config, log zerolog.Logger) error {
	for _, s := range o.MetricsSettings {
		var err error
		on := false
		switch s.Key {
		case "counter_latencies":
			on, err = parseBool(s.Value)
			c.NoCounters = !on
		case "summary_latencies":
			c.Summaries, err = parseBool(s.Value)
		case "histogram_latencies":
			c.Histograms, err = parseBool(s.Value)
		case "stage_histograms":
			on, c.AllBuckets = true, s.Value == "all"
			if !c.AllBuckets {
				on, err = parseBool(s.Value)
			}
			c.NoStages = !on
		case "custom_series_per_model":
			c.ModelSeries, err = parseLimit(s.Value, "series")
		case "custom_series":
			c.Series, err = parseLimit(s.Value, "series")
		case "custom_bytes_per_model":
			c.ModelBytes, err = parseLimit(s.Value, "bytes")
		case "summary_quantiles":
			c.Quantiles, err = parseQuantiles(s.Value, log)
		default:
			log.Warn().Msgf("--metrics-config: the setting '%s' is not known", s.Key)
		}
		if err != nil {
			return infer.Errorf(infer.InvalidArg, "--metrics-config %s=%s: %v", s.Key, s.Value, err)
		}
	}
	return nil
}

// parseLimit parses a limit on the number of something.
func parseLimit(text, of string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("it is %q, want a number of %s, 1 or more", text, of)
	}
	return n, nil
}

// leastError is the smallest allowed error of a quantile. Below it, a summary would keep each
// value.
const leastError = 1e-4

// parseQuantiles parses "<quantile>:<error>,…" like Triton, which reads the number at the beginning
// of a value, and skips a pair without one with an error in the log. The result is nil if no pair
// is left.
func parseQuantiles(text string, log zerolog.Logger) (quantiles map[float64]float64, err error) {
	for pair := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		quantile, allowed, ok := strings.Cut(pair, ":")
		if !ok {
			log.Error().Msgf("Invalid option: [%s]. No ':' delimiter found. Expected format is <quantile>:<error>", pair)
			continue
		}
		q, err := parseFloat(quantile)
		e, err2 := parseFloat(allowed)
		if err != nil || err2 != nil {
			log.Error().Msgf("Invalid option: [%s]. Error: stod", pair)
			continue
		}
		if !(q >= 0 && q <= 1 && e >= 0 && e <= 1) {
			return nil, errors.New("want <quantile>:<error> with numbers between 0 and 1, separated by commas")
		}
		if quantiles == nil {
			quantiles = make(map[float64]float64)
		}
		quantiles[q] = max(e, leastError)
	}
	return quantiles, nil
}
