package flags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/page/admission"
)

// endpointFlags are about what listens.
func endpointFlags() []group {
	return []group{
		{title: "HTTP", flags: httpFlags()},
		{title: "HTTPS", flags: httpsFlags()},
		{title: "GRPC", flags: grpcFlags()},
		{title: "Sagemaker", flags: sageMakerFlags()},
		{title: "Vertex", flags: vertexFlags()},
		{title: "Metrics", flags: metricsFlags()},
		{title: "Tracing", flags: []flag{
			{"trace-config", "<<string>,<string>=<string>>", "A trace setting: level, rate, count or mode " +
				"(<key>=<value>), or one of a mode (triton,file=<path>, triton,log-frequency=<n>, " +
				"opentelemetry,url=<url>, ...). May be given several times.",
				setTraceConfig},
		}},
	}
}

func httpFlags() []flag {
	return []flag{
		{"allow-http", "<boolean>", "Serve HTTP. Default: true.",
			setBool(func(o *Options) *bool { return &o.HTTP.Allow })},
		{"http-address", "<string>", "Address of the HTTP endpoint. Default: 0.0.0.0.",
			setString(func(o *Options) *string { return &o.HTTP.Address })},
		{"http-port", "<integer>", "Its port. Default: 8000.",
			setInt(func(o *Options) *int { return &o.HTTP.Port })},
		{"reuse-http-port", "<boolean>", "Share the port with other servers that say so too. Default: false.",
			setBool(func(o *Options) *bool { return &o.HTTP.ReusePort })},
		{"http-header-forward-pattern", "<string>", "Hand headers whose names this regular expression finds to the model, " +
			"as parameters of the request. Default: none.",
			setString(func(o *Options) *string { return &o.HTTP.ForwardPattern })},
		{"http-thread-count", "<integer>", "Threads that serve HTTP. Default: 8.",
			setInt(func(o *Options) *int { return &o.Threads.HTTP })},
		{"http-max-input-size", "<integer>", "Most bytes of JSON in a request, and of what a compressed one expands to; " +
			"binary tensors are not counted. Default: 67108864.",
			setMaxInputSize},
		{"http-restricted-api", "<<string>:<string>=<string>>", "<groups>:<header>=<value>: requests to these groups of " +
			"endpoints must carry the header. The groups, separated by commas: " + strings.Join(endpointGroups, ", ") + ".",
			setRestricted("api", func(o *Options) *map[string]nereid.Restriction { return &o.HTTP.Restricted })},
	}
}

// httpsFlags are additions to tritonserver's.
func httpsFlags() []flag {
	return []flag{
		{"https-port", "<integer>", "Serve HTTP through TLS as well, at this port; with --allow-http=false, only so. Default: none.",
			setInt(func(o *Options) *int {
				o.HTTPS.Allow = true
				return &o.HTTPS.Port
			})},
		{"https-address", "<string>", "Address of that endpoint. Default: that of --http-address.",
			setString(func(o *Options) *string { return &o.HTTPS.Address })},
		{"https-server-cert", "<string>", "File with the server's certificate, PEM. It is read again when it changes, as the others are.",
			setString(func(o *Options) *string { return &o.HTTPS.CertFile })},
		{"https-server-key", "<string>", "File with its key, PEM.",
			setString(func(o *Options) *string { return &o.HTTPS.KeyFile })},
		{"https-root-cert", "<string>", "File with the certificate that clients' ones are checked against, PEM. " +
			"Default: none, and clients show no certificate.",
			setString(func(o *Options) *string { return &o.HTTPS.RootCertFile })},
	}
}

func grpcFlags() []flag {
	return []flag{
		{"allow-grpc", "<boolean>", "Serve gRPC. Default: true.",
			setBool(func(o *Options) *bool { return &o.GRPC.Allow })},
		{"grpc-address", "<string>", "Address of the gRPC endpoint. Default: 0.0.0.0.",
			setString(func(o *Options) *string { return &o.GRPC.Address })},
		{"grpc-port", "<integer>", "Its port. Default: 8001.",
			setInt(func(o *Options) *int { return &o.GRPC.Port })},
		{"reuse-grpc-port", "<boolean>", "Share the port with other servers that say so too. Default: false.",
			setBool(func(o *Options) *bool { return &o.GRPC.ReusePort })},
		{"grpc-header-forward-pattern", "<string>", "As --http-header-forward-pattern, for gRPC metadata.",
			setString(func(o *Options) *string { return &o.GRPC.ForwardPattern })},
		{"grpc-infer-thread-count", "<integer>", "Threads that serve inference over gRPC, 2 to 128. Default: 2.",
			setIntBetween(2, 128, "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
				func(o *Options) *int { return &o.Threads.GRPCInfer })},
		{"grpc-infer-allocation-pool-size", "<integer>", "Requests that are kept for reuse. Default: 8.",
			setInt(func(o *Options) *int { return &o.Threads.AllocationPoolSize })},
		{"grpc-max-response-pool-size", "<integer>", "Responses that may wait on one stream for a client that reads " +
			"slowly. Default: 2147483647.",
			setIntBetween(1, math.MaxInt32, "--grpc-max-response-pool-size must be greater than 0",
				func(o *Options) *int { return &o.GRPC.ResponsePoolSize })},
		{"grpc-use-ssl", "<boolean>", "Serve gRPC over TLS. Default: false.",
			setBool(func(o *Options) *bool { return &o.GRPC.UseTLS })},
		{"grpc-use-ssl-mutual", "<boolean>", "Over TLS, and only to clients with a certificate. Default: false.",
			setBool(func(o *Options) *bool { return &o.GRPC.MutualTLS })},
		{"grpc-server-cert", "<string>", "File with the server's certificate, PEM.",
			setString(func(o *Options) *string { return &o.GRPC.CertFile })},
		{"grpc-server-key", "<string>", "File with its key, PEM.",
			setString(func(o *Options) *string { return &o.GRPC.KeyFile })},
		{"grpc-root-cert", "<string>", "File with the certificate that clients' ones are checked against, PEM.",
			setString(func(o *Options) *string { return &o.GRPC.RootCertFile })},
		{"grpc-infer-response-compression-level", "<string>", "How responses are compressed: none, low, medium or high. " +
			"Default: none.",
			setCompression},
		{"grpc-keepalive-time", "<integer>", "Milliseconds without traffic after which the server pings. Default: 7200000.",
			setMillis(func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTime })},
		{"grpc-keepalive-timeout", "<integer>", "Milliseconds that it waits for the answer before it hangs up. " +
			"Default: 20000.",
			setMillis(func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTimeout })},
		{"grpc-keepalive-permit-without-calls", "<boolean>", "Ping while there are no calls too. Default: false.",
			setBool(func(o *Options) *bool { return &o.GRPC.KeepaliveWithoutCalls })},
		{"grpc-http2-max-pings-without-data", "<integer>", "Pings in a row without data between them; 0 is no limit. " +
			"Default: 2.",
			setInt(func(o *Options) *int { return &o.Threads.MaxPingsWithoutData })},
		{"grpc-http2-min-recv-ping-interval-without-data", "<integer>", "Milliseconds that a client must leave between " +
			"pings without data; a ping that comes earlier is a strike. Default: 300000.",
			setMillis(func(o *Options) *time.Duration { return &o.GRPC.MinPingInterval })},
		{"grpc-http2-max-ping-strikes", "<integer>", "Strikes before the server hangs up; 0 is no limit. Default: 2.",
			setInt(func(o *Options) *int { return &o.Threads.MaxPingStrikes })},
		{"grpc-max-connection-age", "<integer>", "Milliseconds that a connection may live. Default: no limit.",
			setMillis(func(o *Options) *time.Duration { return &o.GRPC.MaxConnectionAge })},
		{"grpc-max-connection-age-grace", "<integer>", "Milliseconds that its calls have to end after that. " +
			"Default: no limit.",
			setMillis(func(o *Options) *time.Duration { return &o.GRPC.MaxConnectionAgeGrace })},
		{"grpc-restricted-protocol", "<<string>:<string>=<string>>", "As --http-restricted-api, for gRPC.",
			setRestricted("protocol", func(o *Options) *map[string]nereid.Restriction { return &o.GRPC.Restricted })},
	}
}

func sageMakerFlags() []flag {
	return []flag{
		{"allow-sagemaker", "<boolean>", "Serve SageMaker's protocol. Default: false.",
			setBool(func(o *Options) *bool { return &o.SageMaker.Allow })},
		{"sagemaker-port", "<integer>", "Its port. Default: 8080.",
			setInt(func(o *Options) *int { return &o.SageMaker.Port })},
		{"sagemaker-safe-port-range", "<<integer>-<integer>>", "Ports that the other endpoints may use.",
			setSafePorts},
		{"sagemaker-model-directory", "<string>", "Where the models lie that the platform loads. Default: /opt/ml/models.",
			setString(func(o *Options) *string { return &o.SageMaker.ModelDirectory })},
		{"sagemaker-thread-count", "<integer>", "Threads that serve it. Default: 8.",
			setInt(func(o *Options) *int { return &o.Threads.SageMaker })},
	}
}

func vertexFlags() []flag {
	return []flag{
		{"allow-vertex-ai", "<boolean>", "Serve Vertex AI's protocol. Default: true if AIP_MODE is PREDICTION.",
			setBool(func(o *Options) *bool { return &o.VertexAI.Allow })},
		{"vertex-ai-port", "<integer>", "Its port. Default: AIP_HTTP_PORT, or 8080.",
			setInt(func(o *Options) *int { return &o.VertexAI.Port })},
		{"vertex-ai-thread-count", "<integer>", "Threads that serve it. Default: 8.",
			setInt(func(o *Options) *int { return &o.Threads.VertexAI })},
		{"vertex-ai-default-model", "<string>", "The model of requests that name none.",
			setString(func(o *Options) *string { return &o.VertexAI.DefaultModel })},
	}
}

// openAIFlags are those of Triton's OpenAI front end, which is a program of its own.
func openAIFlags() []flag {
	return []flag{
		{"openai-port", "<integer>", "Serve clients of OpenAI's API at this port. Default: none.",
			setInt(func(o *Options) *int {
				o.OpenAI.Allow = true
				return &o.OpenAI.Port
			})},
		{"openai-address", "<string>", "Address of that endpoint. Default: that of --http-address.",
			setString(func(o *Options) *string { return &o.OpenAI.Address })},
		{"openai-backend", "<string>", "Form of the requests to all models: vllm or tensorrtllm. Default: vllm for models " +
			"of the backend vllm, tensorrtllm for all others.",
			setOpenAIFormat},
		{"openai-default-max-tokens", "<integer>", "max_tokens of requests that do not say. Default: 16.",
			setIntBetween(1, math.MaxInt32, "--openai-default-max-tokens must be greater than 0",
				func(o *Options) *int { return &o.OpenAI.DefaultMaxTokens })},
		{"openai-tokenizer", "<string>", "Directory of a tokenizer, or its tokenizer_config.json: its template makes prompts of chats, for all " +
			"models. Default: none.",
			setString(func(o *Options) *string { return &o.OpenAI.Tokenizer })},
		{"openai-chat-template", "<string>", "File with a template that takes the place of the tokenizer's. Default: none, and without a " +
			"tokenizer there are no chats.",
			setString(func(o *Options) *string { return &o.OpenAI.ChatTemplate })},
		{"openai-tensor", "<<string>=<string>>", "<tensor>=<name>: what models call a tensor of these requests, such as " +
			"text_input=PROMPT. May be given several times.",
			setOpenAITensor},
		{"openai-restricted-api", "<<string>:<string>=<string>>", "As --http-restricted-api, for this endpoint. Its groups: " +
			strings.Join(openai.Groups(), ", ") + ".",
			setOpenAIRestricted},
	}
}

// pageFlags are about the page for browsers. An address or a port asks for it.
func pageFlags() []flag {
	return []flag{
		{"http-ui", "<boolean>", "Serve a page for browsers: models, their states and figures, a form for requests. Default: true beside an HTTP endpoint, " +
			"at 127.0.0.1, unless the port is in use.",
			func(p *parser, text string) (err error) {
				if p.o.Page.Allow, err = parseBool(text); err == nil {
					p.o.Page.Dispensable = false
				}
				return err
			}},
		{"http-ui-address", "<string>", "Address of the page. Default: 127.0.0.1.",
			func(p *parser, text string) error {
				p.o.Page.Address, p.o.Page.Dispensable = text, false
				return nil
			}},
		{"http-ui-port", "<integer>", "Its port. Default: 8003.",
			func(p *parser, text string) (err error) {
				p.o.Page.Port, err = parseInt(text)
				p.o.Page.Dispensable = false
				return err
			}},
		{"http-ui-host", "<string>", "A name by which browsers may reach the page, besides addresses and localhost. May be given several times. Default: none.",
			func(p *parser, text string) error {
				p.o.Page.Hosts = append(p.o.Page.Hosts, text)
				return admission.CheckHost(text)
			}},
	}
}

func metricsFlags() []flag {
	return []flag{
		{"allow-metrics", "<boolean>", "Serve metrics. Default: true.",
			setBool(func(o *Options) *bool { return &o.Metrics.Allow })},
		{"allow-gpu-metrics", "<boolean>", "Among them those of GPUs. Default: true.",
			setBool(func(o *Options) *bool { return &o.Metrics.Series.GPU })},
		{"allow-cpu-metrics", "<boolean>", "Among them those of CPU and memory. Default: true.",
			setBool(func(o *Options) *bool { return &o.Metrics.Series.CPU })},
		{"allow-status", "<boolean>", "Serve the server's state at /status of the metrics endpoint, for nereid top: models, instances, " +
			"errors with tracebacks, the last lines of the log. Default: true.",
			setBool(func(o *Options) *bool { return &o.Metrics.AllowStatus })},
		{"metrics-address", "<string>", "Address of the metrics endpoint. Default: that of --http-address.",
			setString(func(o *Options) *string { return &o.Metrics.Address })},
		{"metrics-port", "<integer>", "Its port. Default: 8002.",
			setInt(func(o *Options) *int { return &o.Metrics.Port })},
		{"metrics-interval-ms", "<integer>", "Milliseconds after which CPU and memory, also of the instances' processes, and GPUs are looked at again. Default: 2000.",
			setWith(parseMillis64, func(o *Options) *time.Duration { return &o.Metrics.Series.Interval })},
		{"metrics-config", "<<string>=<string>>", "What is measured: counter_latencies (default true), summary_latencies " +
			"(false), histogram_latencies (false), stage_histograms (true; all: with every bucket), summary_quantiles (<quantile>:<error>, separated by commas); and how many " +
			"series models may make: custom_series_per_model (10000), custom_series (100000), custom_bytes_per_model (33554432). May be given several times.",
			setMetricsConfig},
	}
}

// endpointGroups are what --http-restricted-api and --grpc-restricted-protocol
// can restrict.
var endpointGroups = []string{
	"health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging",
}

// setRestricted makes the setter for "<groups>:<header>=<value>"; what is "api"
// or "protocol".
func setRestricted(what string, field func(*Options) *map[string]nereid.Restriction) func(*parser, string) error {
	flag := map[string]string{"api": "--http-restricted-api", "protocol": "--grpc-restricted-protocol"}[what]
	return setGroups(flag, what, func(name string) error {
		if !slices.Contains(endpointGroups, name) {
			return fmt.Errorf("unknown restricted %s '%s' ", what, name)
		}
		return nil
	}, field)
}

func setOpenAIRestricted(p *parser, text string) error {
	return setGroups("--openai-restricted-api", "api", openai.CheckGroup,
		func(o *Options) *map[string]nereid.Restriction { return &o.OpenAI.Restricted })(p, text)
}

func setGroups(flag, what string, check func(string) error, field func(*Options) *map[string]nereid.Restriction) func(*parser, string) error {
	return func(p *parser, text string) error {
		s, ok := parseSetting(text, ":")
		if !ok || s.name == "" {
			return fmt.Errorf("%s option format is '<config name>:<setting>=<value>'. Got %s", flag, text)
		}
		restricted := *field(p.o)
		if restricted == nil {
			restricted = map[string]nereid.Restriction{}
			*field(p.o) = restricted
		}
		for _, name := range strings.Split(s.name, ",") {
			if err := check(name); err != nil {
				return err
			}
			if _, twice := restricted[name]; twice {
				return fmt.Errorf("restricted %s '%s' can not be specified in multiple config groups", what, name)
			}
			restricted[name] = nereid.Restriction{Header: s.key, Value: s.value}
		}
		return nil
	}
}

func setOpenAIFormat(p *parser, text string) error {
	if text != openai.FormatVLLM && text != openai.FormatTensorRTLLM {
		return fmt.Errorf("invalid argument for --openai-backend. Must be %s or %s.", openai.FormatVLLM, openai.FormatTensorRTLLM)
	}
	p.o.OpenAI.Format = text
	return nil
}

func setOpenAITensor(p *parser, text string) error {
	role, name, _ := strings.Cut(text, "=")
	if role == "" || name == "" {
		return errors.New("--openai-tensor option format is <tensor>=<name>. Got " + text)
	}
	if err := openai.CheckTensor(role); err != nil {
		return err
	}
	if p.o.OpenAI.Tensors == nil {
		p.o.OpenAI.Tensors = map[string]string{}
	}
	p.o.OpenAI.Tensors[role] = name
	return nil
}

func setMaxInputSize(p *parser, text string) error {
	n, err := parseInt64(text)
	switch {
	case err != nil:
		return err
	case n <= 0:
		return errors.New("--http-max-input-size must be greater than 0")
	}
	p.o.HTTP.MaxInputBytes = n
	return nil
}

func setCompression(p *parser, text string) error {
	switch level := strings.ToLower(text); level {
	case "none", "low", "medium", "high":
		p.o.GRPC.Compression = level
		return nil
	}
	return errors.New("invalid argument for --grpc_infer_response_compression_level")
}

func setSafePorts(p *parser, text string) error {
	first, last, err := parsePair(text, "-")
	if err != nil {
		return err
	}
	for i, end := range []string{first, last} {
		if p.o.SafePorts[i], err = parseInt(end); err != nil {
			return err
		}
	}
	return nil
}

func setMetricsConfig(p *parser, text string) error {
	key, value, _ := strings.Cut(text, "=")
	if key == "" || value == "" || strings.Contains(key, ",") {
		return errors.New("--metrics-config option format is <setting>=<value>. Got " + text)
	}
	p.o.MetricsSettings = append(p.o.MetricsSettings, Setting{key, value})
	return nil
}
