package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/server"
)

// Options is the command line, read. defaults returns what holds where a flag
// is not given; the comments name the flags.
type Options struct {
	ServerID            string // --id
	ExitTimeoutSeconds  int    // --exit-timeout-secs: how long a graceful exit may take
	ExitOnError         bool   // --exit-on-error: end if a model fails to load at start
	RequestMemoryBytes  uint64 // --request-memory-byte-size: for all that clients make the server take; 0 is half of the memory
	AllowClientSHM      bool   // --allow-client-shm: clients may register shared memory
	Log                 LogOptions
	Repository          RepositoryOptions
	HTTP                HTTPOptions
	GRPC                GRPCOptions
	SageMaker, VertexAI CloudOptions
	Metrics             MetricsOptions
	Trace               TraceOptions
	Cache               CacheOptions
	RateLimit           RateLimitOptions
	Backends            BackendOptions
	Memory              MemoryOptions
	Delay               DelayOptions

	// NoEffect names the flags that were given and are known, but on which
	// nothing acts: one warning is due for each.
	NoEffect []string
}

// DelayOptions are for tests that are written for Triton: schedulers begin when
// enough waits. They come from the environment; 0 is off.
type DelayOptions struct {
	Requests int // TRITONSERVER_DELAY_SCHEDULER
	Backlog  int // TRITONSERVER_BACKLOG_DELAY_SCHEDULER: of sequences
}

// LogOptions are where log lines go at first, and which.
type LogOptions struct {
	Info, Warning, Error bool   // --log-info, --log-warning, --log-error
	Verbose              int    // --log-verbose: 0 is off
	ISO8601              bool   // --log-format=ISO8601
	File                 string // --log-file: append there; empty is the console
}

// ControlMode says who decides which models are loaded.
type ControlMode string

// The control modes, as the start-up table spells them.
const (
	ControlNone     ControlMode = "MODE_NONE"     // all, once
	ControlPoll     ControlMode = "MODE_POLL"     // what lies in the repository
	ControlExplicit ControlMode = "MODE_EXPLICIT" // the load and unload requests
)

// RepositoryOptions are about which models there are.
type RepositoryOptions struct {
	Paths                     []string // --model-repository, --model-store; sorted, each once; at least one is needed
	Control                   ControlMode
	PollSeconds               int      // --repository-poll-secs
	StartupModels             []string // --load-model, sorted, each once; "*" alone is all
	ConfigName                string   // --model-config-name: configs/<name>.pbtxt
	LoadThreads               int      // --model-load-thread-count
	LoadRetries               int      // --model-load-retry-count
	Namespacing               bool     // --model-namespacing
	StrictReadiness           bool     // --strict-readiness: ready only if all models are
	DisableAutoCompleteConfig bool     // --disable-auto-complete-config
	AgentDirectory            string   // --repoagent-directory
}

// Restriction is what a request must carry to use a group of endpoints.
type Restriction struct {
	Header, Value string
}

// HTTPOptions are about the HTTP endpoint.
type HTTPOptions struct {
	Allow          bool
	Address        string
	Port           int
	ReusePort      bool
	Threads        int
	MaxInputBytes  int64                  // --http-max-input-size: of JSON and of what is decompressed
	ForwardPattern string                 // --http-header-forward-pattern: RE2; empty forwards nothing
	Restricted     map[string]Restriction // --http-restricted-api, by group of endpoints
	Limits         server.HTTPConfig      // those of limitFlags; nothing else of it is looked at
}

// GRPCOptions are about the gRPC endpoint.
type GRPCOptions struct {
	Allow              bool
	Address            string
	Port               int
	ReusePort          bool
	ForwardPattern     string
	Restricted         map[string]Restriction // --grpc-restricted-protocol
	InferThreads       int                    // --grpc-infer-thread-count
	AllocationPoolSize int                    // --grpc-infer-allocation-pool-size
	ResponsePoolSize   int                    // --grpc-max-response-pool-size: responses that a stream may have waiting
	Compression        string                 // --grpc-infer-response-compression-level: none, low, medium, high
	Limits             server.GRPCConfig      // those of limitFlags; nothing else of it is looked at

	UseTLS, MutualTLS                bool
	CertFile, KeyFile, RootCertFile  string // PEM
	KeepaliveMillis                  int    // --grpc-keepalive-time
	KeepaliveTimeoutMillis           int    // --grpc-keepalive-timeout
	KeepaliveWithoutCalls            bool   // --grpc-keepalive-permit-without-calls
	MaxPingsWithoutData              int    // --grpc-http2-max-pings-without-data
	MinPingIntervalWithoutDataMillis int    // --grpc-http2-min-recv-ping-interval-without-data
	MaxPingStrikes                   int    // --grpc-http2-max-ping-strikes
	MaxConnectionAgeMillis           int    // --grpc-max-connection-age: 0 is none
	MaxConnectionAgeGraceMillis      int    // --grpc-max-connection-age-grace: 0 is none
}

// CloudOptions are about an endpoint that speaks a cloud's own protocol.
type CloudOptions struct {
	Allow        bool
	Port         int
	SafePorts    [2]int // --sagemaker-safe-port-range: both 0 is any
	Threads      int
	DefaultModel string // --vertex-ai-default-model
}

// MetricsOptions are about the metrics endpoint.
type MetricsOptions struct {
	Allow, AllowCPU, AllowGPU bool
	Address                   string // --metrics-address: that of HTTP if not given
	Port                      int
	IntervalMillis            int64
	Config                    []Setting // --metrics-config, in order
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
	// Settings are those of a mode, by its name, in order, such as "file" of "triton".
	Settings map[string][]Setting
}

// CacheOptions are about the response cache.
type CacheOptions struct {
	Settings  map[string]map[string]string // --cache-config, by cache and key; empty is no cache
	Directory string
}

// RateLimitOptions are about which instance is next.
type RateLimitOptions struct {
	ExecutionCount bool // --rate-limit=execution_count
	Resources      []Resource
}

// Resource is one --rate-limit-resource.
type Resource struct {
	Name   string
	Count  int
	Device int // -1 is every device
}

// BackendOptions are what backends are told.
type BackendOptions struct {
	Directory string
	// Settings are --backend-config, by backend and key; those for all backends
	// stand under the empty name. Of duplicates the last counts.
	Settings map[string]map[string]string
}

// MemoryOptions are about memory and devices that this server has no use for;
// the start-up table shows some of them.
type MemoryOptions struct {
	PinnedPoolBytes         int64
	CUDAPoolBytes           map[int]uint64 // by device
	CUDAVirtualAddressBytes map[int]uint64
	LoadGPULimit            map[int]float64
	MinComputeCapability    float64
	EnablePeerAccess        bool
	BufferManagerThreads    int
	HostPolicies            map[string]map[string]string
}

// defaults returns the options of an empty command line. getenv is os.Getenv.
func defaults(getenv func(string) string) *Options {
	return &Options{
		ServerID:           "triton",
		ExitTimeoutSeconds: 30,
		ExitOnError:        true,
		Log:                LogOptions{Info: true, Warning: true, Error: true},
		Repository: RepositoryOptions{
			Control: ControlNone, PollSeconds: 15, LoadThreads: 4, StrictReadiness: true,
			AgentDirectory: "/opt/tritonserver/repoagents",
		},
		HTTP: HTTPOptions{
			Allow: true, Address: "0.0.0.0", Port: 8000, Threads: 8, MaxInputBytes: 64 << 20,
			Limits: server.HTTPConfig{DrainTime: 5 * time.Second}.WithDefaults(),
		},
		GRPC: GRPCOptions{
			Allow: true, Address: "0.0.0.0", Port: 8001,
			InferThreads: 2, AllocationPoolSize: 8, ResponsePoolSize: 1<<31 - 1, Compression: "none",
			KeepaliveMillis: 7_200_000, KeepaliveTimeoutMillis: 20_000,
			Limits:              server.GRPCConfig{}.WithDefaults(),
			MaxPingsWithoutData: 2, MinPingIntervalWithoutDataMillis: 300_000, MaxPingStrikes: 2,
		},
		SageMaker: CloudOptions{Port: 8080, Threads: 8},
		VertexAI:  CloudOptions{Allow: getenv("AIP_MODE") == "PREDICTION", Port: vertexPort(getenv), Threads: 8},
		Metrics:   MetricsOptions{Allow: true, AllowCPU: true, AllowGPU: true, Port: 8002, IntervalMillis: 2000},
		Trace:     TraceOptions{Mode: "triton", Rate: 1000, Count: -1},
		Cache:     CacheOptions{Directory: "/opt/tritonserver/caches"},
		Backends:  BackendOptions{Directory: "/opt/tritonserver/backends"},
		Memory:    MemoryOptions{PinnedPoolBytes: 256 << 20, EnablePeerAccess: true},
		Delay: DelayOptions{
			Requests: countFrom(getenv("TRITONSERVER_DELAY_SCHEDULER")), Backlog: countFrom(getenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER")),
		},
	}
}

// countFrom reads a variable of the environment; what is no count is 0.
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

// finish fills in what depends on several flags and checks what must agree.
// twoCaches is true if the cache was described in the old way and the new.
func (o *Options) finish(twoCaches bool) error {
	slices.Sort(o.Repository.Paths)
	o.Repository.Paths = slices.Compact(o.Repository.Paths)
	slices.Sort(o.Repository.StartupModels)
	o.Repository.StartupModels = slices.Compact(o.Repository.StartupModels)
	if o.Metrics.Address == "" {
		o.Metrics.Address = o.HTTP.Address
	}
	if len(o.Repository.StartupModels) > 0 && o.Repository.Control != ControlExplicit {
		return errors.New("Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
	}
	if twoCaches {
		return errors.New("Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. " +
			"Please provide one or the other.")
	}
	return o.checkPorts()
}

// checkPorts refuses two endpoints at one address.
func (o *Options) checkPorts() error {
	endpoints := []struct {
		name    string
		on      bool
		address string
		port    int
	}{
		{"HTTP", o.HTTP.Allow, o.HTTP.Address, o.HTTP.Port},
		{"GRPC", o.GRPC.Allow, o.GRPC.Address, o.GRPC.Port},
		{"metrics", o.Metrics.Allow, o.Metrics.Address, o.Metrics.Port},
	}
	for i, a := range endpoints {
		for _, b := range endpoints[i+1:] {
			if a.on && b.on && a.address == b.address && a.port == b.port {
				return fmt.Errorf("The server cannot listen to %s requests and %s requests at the same address and port %s:%d",
					a.name, b.name, a.address, a.port)
			}
		}
	}
	return nil
}
