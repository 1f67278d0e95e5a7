package nereid

import (
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/cores"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/recording"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/status"
	"github.com/nereid-serving/nereid/server/tracing"
)

// ProtocolVersion is the release of Triton whose protocol, flags and texts are
// served; clients see it as the server's version.
const ProtocolVersion = "2.51.0"

// Options describe a server. Defaults returns tritonserver's defaults; the zero value serves nothing.
// Comments name the flag of command nereid that sets a field. New does not modify maps and slices.
type Options struct {
	ServerID           string        // --id: the server's name in its metadata
	ExitTimeout        time.Duration // --exit-timeout-secs: for requests in flight and for the unloading of models; below 0 is 0
	ExitDelay          time.Duration // --exit-delay-secs: how long the server goes on, and says that it is not ready, when it is told to end
	ExitOnError        bool          // --exit-on-error: New fails for a bad repository, and Run for a model that does not load
	RequestMemoryBytes uint64        // --request-memory-byte-size: for all that clients make the server take; 0 is half of the memory
	ClientLimits       budget.Limits // --client-max-…: bounds of values that are small by nature
	CacheBytes         int64         // size of the response cache; 0: no cache
	AllowClientSHM     bool          // --allow-client-shm: clients may register regions of shared memory
	StrictOutputs      bool          // --strict-outputs: outputs that are not as their model's config says are errors
	MaxClientRegions   int           // --client-shm-max-regions: how many there may be; 0 is clientshm.DefaultMost
	Limits             ModelLimits
	Repository         RepositoryOptions
	HTTP               HTTPOptions
	HTTPS              HTTPSOptions
	GRPC               GRPCOptions
	SageMaker          SageMakerOptions
	VertexAI           VertexAIOptions
	OpenAI             OpenAIOptions
	Metrics            MetricsOptions
	Page               PageOptions
	Record             recording.Config // --record and its relatives; New fills in Memory and Log. Without a Directory nothing is recorded
	Trace              tracing.Config   // --trace-config; New fills in Now, Log and Memory. Without a mode nothing is traced
	RateLimit          RateLimitOptions
	Backends           BackendOptions
	HostPolicies       cores.HostPolicies // --host-policy: where instances run, by policy and key
	Delay              DelayOptions

	Logger zerolog.Logger // the zero value writes nothing
	// Lines has the last lines of the log, which the writer below Logger adds, for the status; nil: it
	// shows none.
	Lines *status.Log
	Build string // the version of the program, for the status
	// Logging is what clients see and change of the log. Nil: they see the level of
	// Logger, and changes have no effect.
	Logging server.LogControl
	// Busy reports whether changes of sources wait with Repository.Develop, since a person debugs; nil: they never do.
	Busy func() bool
	// Loads is told of loads as they happen; nil: nothing is.
	Loads models.LoadObserver
	// Stdout and Stderr get what models print, a whole line with each Write, from
	// several goroutines. Write must not wait. Nil: the lines go to Logger.
	Stdout, Stderr io.Writer

	// SoleParent says that nothing else in this process waits for children. The
	// server then reaps every orphan that comes home to the process.
	SoleParent bool
	// LimitGoHeap has the memory limit of the Go runtime (debug.SetMemoryLimit), which
	// is that of the whole process, follow the server's account.
	LimitGoHeap bool
}

// ControlMode says who decides which models are loaded.
type ControlMode string

// The control modes, as the start-up table spells them.
const (
	ControlNone     ControlMode = "MODE_NONE"     // all, once
	ControlPoll     ControlMode = "MODE_POLL"     // the models in the repository
	ControlExplicit ControlMode = "MODE_EXPLICIT" // the load and unload requests
)

// RepositoryOptions are about which models there are.
type RepositoryOptions struct {
	Paths                     []string // --model-repository, --model-store; at least one is needed
	Control                   ControlMode
	PollInterval              time.Duration // --repository-poll-secs: of ControlPoll; 0 looks at the repository once
	StartupModels             []string      // --load-model: of ControlExplicit; "*" alone is all
	ConfigName                string        // --model-config-name: configs/<name>.pbtxt
	LoadThreads               int           // --model-load-thread-count
	LoadRetries               int           // --model-load-retry-count
	Namespacing               bool          // --model-namespacing
	Develop                   bool          // --dev: models are reloaded when their sources change; the modes none and poll are the same then
	StrictReadiness           bool          // --strict-readiness: ready only if all models are
	DisableAutoCompleteConfig bool          // --disable-auto-complete-config
	AgentDirectory            string        // --repoagent-directory
	// Objects opens s3://, gs:// and as:// among Paths (WithObjectStores). Nil: they are refused.
	Objects objectstore.Opener
	// Stop is closed when New is to give up its wait for stores. Nil: it never is.
	Stop <-chan struct{}
	// Mounts are the directories in which copies of models from stores lie, by scheme: TRITON_AWS_MOUNT_DIRECTORY and its
	// kin. "" is the directory for temporary files.
	Mounts map[string]string
}

// HTTPOptions configure the HTTP endpoint. The limits and restrictions of Config also hold for the
// other endpoints that speak HTTP. New sets ServerName, ServerVersion, Certificates, Hosts,
// Addresses, MaxGroupInstances, MaxLoadFiles, Connections and ExitTimeout.
type HTTPOptions struct {
	Allow bool // --allow-http
	rest.Config
}

// HTTPSOptions are about the HTTP endpoint through TLS, which stands beside the other or
// alone. All else is as HTTPOptions say. Files are PEM; they are read again when they
// change.
type HTTPSOptions struct {
	Allow        bool
	Address      string // --https-address: that of HTTP if empty
	Port         int    // --https-port; 0: the kernel chooses, and HTTPSAddr tells
	CertFile     string // --https-server-cert
	KeyFile      string // --https-server-key
	RootCertFile string // --https-root-cert: whose clients are accepted; "": clients show no certificate
}

// GRPCOptions configure the gRPC endpoint. New sets ServerName, ServerVersion, MaxLoadFiles,
// Connections and ExitTimeout. TLS.Mutual implies TLS.Enabled.
type GRPCOptions struct {
	Allow bool // --allow-grpc
	grpc.Config
}

// SageMakerOptions are about the endpoint of Amazon SageMaker, at all addresses. Limits and
// restrictions are those of HTTP.
type SageMakerOptions struct {
	Allow         bool   // --allow-sagemaker
	Port          int    // --sagemaker-port; 0: the kernel chooses, and SageMakerAddr tells
	DefaultModel  string // SAGEMAKER_TRITON_DEFAULT_MODEL_NAME
	LivePing      bool   // SAGEMAKER_TRITON_PING_MODE is "live"
	InferenceType string // SAGEMAKER_TRITON_INFERENCE_TYPE: infer, generate or generate_stream; "" is infer
	// ModelDirectory, --sagemaker-model-directory, is where the models lie that the platform
	// loads; "" is /opt/ml/models.
	ModelDirectory string
}

// VertexAIOptions are about the endpoint of Vertex AI, at all addresses. Limits and
// restrictions are those of HTTP.
type VertexAIOptions struct {
	Allow        bool   // --allow-vertex-ai
	Port         int    // --vertex-ai-port; 0: the kernel chooses, and VertexAIAddr tells
	DefaultModel string // --vertex-ai-default-model: "" is the only ready model
	PredictRoute string // AIP_PREDICT_ROUTE
	HealthRoute  string // AIP_HEALTH_ROUTE
}

// OpenAIOptions are about the endpoint for clients of OpenAI's API. Limits are those of
// HTTP.
type OpenAIOptions struct {
	Allow            bool
	Address          string               // --openai-address: that of HTTP if empty
	Port             int                  // --openai-port; 0: the kernel chooses, and OpenAIAddr tells
	DefaultMaxTokens int                  // --openai-default-max-tokens: 0 is 16
	Format           string               // --openai-backend: vllm or tensorrtllm; "" as the backend of each model says
	Tokenizer        string               // --openai-tokenizer: a folder or a tokenizer_config.json; its template makes prompts of chats
	ChatTemplate     string               // --openai-chat-template: a file that takes the place of the tokenizer's template
	Tensors          map[string]string    // --openai-tensor: the models' names of tensors
	Restricted       []server.Restriction // --openai-restricted-api
}

// MetricsOptions are about the metrics endpoint. Its connections have the limits of
// HTTPOptions.
type MetricsOptions struct {
	Allow   bool
	Address string // --metrics-address: that of HTTP if empty
	Port    int    // 0: the kernel chooses, and MetricsAddr tells
	// AllowStatus is --allow-status: /status tells what Server.Status does.
	AllowStatus bool
	// Series selects the metrics: --metrics-config, --allow-cpu-metrics,
	// --allow-gpu-metrics, --metrics-interval-ms. New fills in NoCustom and Log.
	Series metrics.Config
}

// PageOptions are about the page for browsers (docs/page.md). Its connections have the limits of HTTPOptions, of
// which it obeys Restricted, too. The zero value serves none.
type PageOptions struct {
	Allow   bool     // --http-ui
	Address string   // --http-ui-address: 127.0.0.1 if empty
	Port    int      // --http-ui-port; 0: the kernel chooses, and PageAddr tells
	Hosts   []string // --http-ui-host: names by which browsers may reach it, besides addresses and localhost
	// Dispensable says that the server starts without the page where it cannot listen.
	Dispensable bool
}

// PagePort is where the page is unless an option says.
const PagePort = 8003

// ModelLimits bound what models, and requests about them, may ask. Those of clients are
// in HTTPOptions and GRPCOptions. 0 is the default of each.
type ModelLimits struct {
	QueuedRequests int // --model-max-queued-requests: that wait for one version
	GroupInstances int // --model-max-requested-instances: that a request may give a group
	LoadFiles      int // --model-max-load-files: files and directories that come with a load request
	// Processes have Instances, --model-max-instances; Output, --model-max-printed-lines,
	// --model-printed-lines-per-second and --model-max-printed-line-size; Calls,
	// --model-max-calls, --model-max-call-size and --model-max-call-files; and MemoryShare,
	// --model-max-memory-share.
	Processes process.Limits
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
	Directory string // --backend-directory: of plugins and Python-based backends
	// Settings are --backend-config, by backend and key; those for all backends
	// stand under the empty name.
	Settings map[string]map[string]string
	// Linked are backends that are part of this program, by name (WithBackend).
	Linked map[string]sdk.New
	// MinComputeCapability is --min-supported-compute-capability: that of GPUs on which
	// instances are placed; 0 is any.
	MinComputeCapability float64
	// LoadGPULimit is --model-load-gpu-limit: the share of a GPU's memory, by its number, that
	// may be in use when instances have been brought up there.
	LoadGPULimit map[int]float64
}

// DelayOptions are for tests that are written for Triton: schedulers begin when
// enough waits. 0 is off.
type DelayOptions struct {
	Requests int // TRITONSERVER_DELAY_SCHEDULER
	Backlog  int // TRITONSERVER_BACKLOG_DELAY_SCHEDULER: of sequences
}

// Defaults returns the options of tritonserver without flags, less a repository.
func Defaults() Options {
	return Options{
		ServerID:    "triton",
		ExitTimeout: 30 * time.Second,
		ExitOnError: true,

		ClientLimits:     budget.Limits{}.WithDefaults(),
		MaxClientRegions: clientshm.DefaultMost,
		Limits: ModelLimits{
			QueuedRequests: scheduler.DefaultMaxQueue, GroupInstances: models.MaxInstances, LoadFiles: repository.DefaultUploadEntries,
			Processes: process.Limits{}.WithDefaults(),
		},
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
}
