package nereid

import (
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/platforms"
	"github.com/nereid-serving/nereid/server/recording"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/status"
	"github.com/nereid-serving/nereid/server/tracing"
)

// ProtocolVersion is the release of Triton whose protocol, flags and texts are supported; clients
// see it as the server's version.
const ProtocolVersion = "2.51.0"

// Options configure a server. Defaults returns tritonserver's defaults; the zero value serves
// nothing. Comments name the flag of command nereid that sets a field. New does not modify maps and
// slices.
type Options struct {
	ServerID           string        // --id: the server's name in its metadata
	ExitTimeout        time.Duration // --exit-timeout-secs: for requests in flight and for unloading models; below 0 means 0
	ExitDelay          time.Duration // --exit-delay-secs: how long a server that is told to stop continues, not ready
	ExitOnError        bool          // --exit-on-error: New fails for a bad repository, and Run for a model that does not load
	RequestMemoryBytes uint64        // --request-memory-byte-size: for everything that clients make the server take; 0 is half of the memory
	ClientLimits       budget.Limits // --client-max-…, --model-max-load-files and --model-max-requested-instances
	CacheBytes         int64         // size of the response cache; 0: no cache
	AllowClientSHM     bool          // --allow-client-shm: clients may register regions of shared memory
	StrictOutputs      bool          // --strict-outputs: outputs that do not match their model's config are errors
	MaxClientRegions   int           // --client-shm-max-regions; 0 is the default
	Limits             ModelLimits
	Repository         RepositoryOptions
	HTTP               HTTPOptions
	HTTPS              HTTPSOptions
	GRPC               GRPCOptions
	SageMaker          SageMakerOptions
	VertexAI           VertexAIOptions
	OpenAI             OpenAIOptions
	UnixSocket         connections.UnixSocket // --unix-socket-mode, --unix-socket-owner
	Metrics            MetricsOptions
	Page               PageOptions
	Record             recording.Config // --record and related flags; New fills in Memory and Log. Without a Directory nothing is recorded
	Trace              tracing.Config   // --trace-config; New fills in Now, Log and Memory. Without a mode nothing is traced
	RateLimit          RateLimitOptions
	Backends           BackendOptions
	HostPolicies       placement.HostPolicies // --host-policy: CPUs of instances, by policy and key
	Delay              DelayOptions

	Logger zerolog.Logger // the zero value writes nothing
	// Lines holds the last lines of the log for the status. The writer below Logger adds them. Nil:
	// the status shows none.
	Lines *status.Log
	Build string // the version of the program, for the status
	// Logging lets clients read and change log settings. Nil: they see the level of Logger, and
	// changes have no effect.
	Logging server.LogControl
	// Busy reports whether reloads of Repository.Develop should wait because someone is debugging.
	// Nil: never.
	Busy func() bool
	// Loads observes loads. It may be nil.
	Loads models.LoadObserver
	// Stdout and Stderr receive the output of models, one whole line per Write, from several
	// goroutines. Write must not block. Nil: the lines go to Logger.
	Stdout, Stderr io.Writer

	// SoleParent means that nothing else in this process waits for children. The server then reaps
	// every orphan that becomes its child.
	SoleParent bool
	// LimitGoHeap makes the memory limit of the Go runtime (debug.SetMemoryLimit), which is global
	// to the process, follow the server's account.
	LimitGoHeap bool
}

// ControlMode selects what decides which models are loaded.
type ControlMode string

// The control modes, as spelled in the start-up table.
const (
	ControlNone     ControlMode = "MODE_NONE"     // all, once
	ControlPoll     ControlMode = "MODE_POLL"     // the models in the repository
	ControlExplicit ControlMode = "MODE_EXPLICIT" // the load and unload requests
)

// RepositoryOptions configure the model repository.
type RepositoryOptions struct {
	Paths                     []string // --model-repository, --model-store; at least one is needed
	Control                   ControlMode
	PollInterval              time.Duration // --repository-poll-secs: for ControlPoll; 0 polls only once
	StartupModels             []string      // --load-model: for ControlExplicit; "*" alone is all
	ConfigName                string        // --model-config-name: configs/<name>.pbtxt
	LoadThreads               int           // --model-load-thread-count
	LoadRetries               int           // --model-load-retry-count
	Namespacing               bool          // --model-namespacing
	Develop                   bool          // --dev: models are reloaded when their sources change; the modes none and poll are then the same
	StrictReadiness           bool          // --strict-readiness: ready only if all models are
	DisableAutoCompleteConfig bool          // --disable-auto-complete-config
	AgentDirectory            string        // --repoagent-directory
	// Objects opens s3://, gs:// and as:// in Paths (WithObjectStores). Nil: they are rejected.
	Objects objectstore.Opener
	// Stop is closed to make New stop waiting for stores. It may be nil.
	Stop <-chan struct{}
	// Mounts are the directories for copies of models from stores, by scheme:
	// TRITON_AWS_MOUNT_DIRECTORY and others. "" is the directory for temporary files.
	Mounts map[string]string
}

// HTTPOptions configure the HTTP endpoint. The limits and restrictions of Config also apply to the
// other endpoints that speak HTTP. New sets ServerName, ServerVersion, Certificates, Hosts,
// Addresses, Connections, UnixSocket and ExitTimeout.
type HTTPOptions struct {
	Allow bool // --allow-http
	rest.Config
}

// HTTPSOptions configure the HTTPS endpoint, which can run beside HTTP or alone. All other settings
// are those of HTTPOptions. Files are PEM; they are read again when they change.
type HTTPSOptions struct {
	Allow        bool
	Address      string // --https-address: HTTP's if empty, or 127.0.0.1 if that is a Unix socket
	Port         int    // --https-port; 0: the kernel chooses, see HTTPSAddr
	CertFile     string // --https-server-cert
	KeyFile      string // --https-server-key
	RootCertFile string // --https-root-cert: CA of client certificates; "": clients need none
}

// GRPCOptions configure the gRPC endpoint. New sets ServerName, ServerVersion,
// Connections and ExitTimeout. TLS.Mutual implies TLS.Enabled.
type GRPCOptions struct {
	Allow bool // --allow-grpc
	grpc.Config
}

// SageMakerOptions configure the Amazon SageMaker endpoint, on all addresses. Limits and
// restrictions are those of HTTP. New sets REST and Repositories.
type SageMakerOptions struct {
	Allow bool // --allow-sagemaker
	Port  int  // --sagemaker-port; 0: the kernel chooses, see SageMakerAddr
	platforms.SageMakerConfig
}

// VertexAIOptions configure the Vertex AI endpoint, on all addresses. Limits and restrictions are
// those of HTTP. New sets REST and Exposition.
type VertexAIOptions struct {
	Allow bool // --allow-vertex-ai
	Port  int  // --vertex-ai-port; 0: the kernel chooses, see VertexAIAddr
	platforms.VertexConfig
}

// OpenAIOptions configure the OpenAI endpoint. Limits are those of HTTP. New sets REST,
// LoadsOnRequest and Exposition.
type OpenAIOptions struct {
	Allow   bool
	Address string // --openai-address: as for HTTPS
	Port    int    // --openai-port; 0: the kernel chooses, see OpenAIAddr
	openai.Config
}

// MetricsOptions configure the metrics endpoint. Its connections have the limits of HTTPOptions.
type MetricsOptions struct {
	Allow   bool
	Address string // --metrics-address: as for HTTPS
	Port    int    // 0: the kernel chooses, see MetricsAddr
	// AllowStatus is --allow-status: /status returns Server.Status.
	AllowStatus bool
	// Series selects the metrics: --metrics-config, --allow-cpu-metrics,
	// --allow-gpu-metrics, --metrics-interval-ms. New fills in NoCustom and Log.
	Series metrics.Config
}

// PageOptions configure the web page (docs/page.md). Its connections have the limits of
// HTTPOptions, whose Restricted it also obeys. The zero value serves none.
type PageOptions struct {
	Allow   bool     // --http-ui
	Address string   // --http-ui-address: 127.0.0.1 if empty
	Port    int      // --http-ui-port; 0: the kernel chooses, see PageAddr
	Hosts   []string // --http-ui-host: names by which browsers may reach it, besides addresses and localhost
	// Dispensable means that the server starts without the page if it cannot listen.
	Dispensable bool
}

// PagePort is the default port of the page.
const PagePort = 8003

// ModelLimits limit models. The limits of clients are in ClientLimits, HTTPOptions and GRPCOptions.
// 0 is the default of each.
type ModelLimits struct {
	QueuedRequests int // --model-max-queued-requests: waiting for one version
	// Processes holds Instances, --model-max-instances; Output, --model-max-printed-lines,
	// --model-printed-lines-per-second and --model-max-printed-line-size; Calls, --model-max-calls,
	// --model-max-call-size and --model-max-call-files; and MemoryShare, --model-max-memory-share.
	Processes process.Limits
}

// RateLimitOptions configure the rate limiter.
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

// BackendOptions configure backends.
type BackendOptions struct {
	Directory string // --backend-directory: of plugins and Python-based backends
	// Settings are --backend-config, by backend and key. The empty name is for all backends.
	Settings map[string]map[string]string
	// Linked are backends that are part of this program, by name (WithBackend).
	Linked map[string]sdk.New
	// MinComputeCapability is --min-supported-compute-capability, for GPUs that instances run on; 0
	// is any.
	MinComputeCapability float64
	// LoadGPULimit is --model-load-gpu-limit: the share of a GPU's memory, by its number, that may
	// be in use after instances have been started there.
	LoadGPULimit map[int]float64
}

// DelayOptions are for tests written for Triton: schedulers begin once enough requests wait. 0 is
// off.
type DelayOptions struct {
	Requests int // TRITONSERVER_DELAY_SCHEDULER
	Backlog  int // TRITONSERVER_BACKLOG_DELAY_SCHEDULER: number of sequences
}

// Defaults returns the options of tritonserver without flags, without a repository.
func Defaults() Options {
	o := Options{
		ServerID:    "triton",
		ExitTimeout: 30 * time.Second,
		ExitOnError: true,

		Repository: RepositoryOptions{
			Control: ControlNone, PollInterval: 15 * time.Second, LoadThreads: 4, StrictReadiness: true,
			AgentDirectory: "/opt/tritonserver/repoagents",
		},
		HTTP:     HTTPOptions{Allow: true, Config: rest.Config{Port: 8000, Config: http1.Config{DrainTime: 5 * time.Second}}.WithDefaults()},
		GRPC:     GRPCOptions{Allow: true, Config: grpc.Config{Port: 8001}.WithDefaults()},
		Metrics:  MetricsOptions{Allow: true, AllowStatus: true, Port: 8002, Series: metrics.Config{CPU: true, GPU: true, Interval: 2 * time.Second, PinnedPoolBytes: 256 << 20}},
		Trace:    tracing.Config{Mode: tracing.Triton, Rate: 1000, Count: -1},
		Backends: BackendOptions{Directory: "/opt/tritonserver/backends"},
	}
	o.Bounds().SetDefaults()
	return o
}
