package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/page/admission"
)

// endpointFlags lists flags about listening addresses.
func endpointFlags() []group {
	return []group{
		{title: "HTTP", flags: httpFlags()},
		{title: "HTTPS", flags: httpsFlags()},
		{title: "GRPC", flags: grpcFlags()},
		{title: "Sagemaker", flags: sageMakerFlags()},
		{title: "Vertex", flags: vertexFlags()},
		{title: "Metrics", flags: metricsFlags()},
		{title: "Tracing", flags: []flag{
			row("trace-config", "<<string>,<string>=<string>>", "Trace setting: level, rate, count or mode (<key>=<value>), or a setting of one mode (triton,file=<path>, triton,log-frequency=<n>, opentelemetry,url=<url>, ...). May be given several times.",
				setTraceConfig),
		}},
	}
}

func httpFlags() []flag {
	return []flag{
		toggle("allow-http", "Serve HTTP.",
			func(o *Options) *bool { return &o.HTTP.Allow }),
		word("http-address", "Address of the HTTP endpoint, or unix:<path> for a Unix socket.",
			func(o *Options) *string { return &o.HTTP.Address }),
		number("http-port", "Port of the HTTP endpoint.",
			func(o *Options) *int { return &o.HTTP.Port }),
		toggle("reuse-http-port", "Share the HTTP port with other servers that also set this flag.",
			func(o *Options) *bool { return &o.HTTP.ReusePort }),
		pattern("http-header-forward-pattern", "Pass headers whose names match this regular expression to the model, as request parameters. Default: none.",
			func(o *Options) *string { return &o.HTTP.ForwardPattern }),
		number("http-thread-count", "Number of HTTP threads.",
			func(o *Options) *int { return &o.Threads.HTTP }),
		tritonLimit("http-max-input-size", "Maximum size of the JSON of a request and of a decompressed body, in bytes. Binary tensors are not counted. If exceeded: 400.", "--http-max-input-size must be greater than 0", parseInt64,
			func(o *Options) *int64 { return &o.HTTP.MaxInputBytes }),
		row("http-restricted-api", "<<string>:<string>=<string>>", "<groups>:<header>=<value>: requests to these groups of endpoints must carry the header. Groups, separated by commas: "+strings.Join(endpointGroups, ", ")+".",
			setRestricted("api", func(o *Options) *[]server.Restriction { return &o.HTTP.Restricted })),
	}
}

// httpsFlags are additions to tritonserver's flags.
func httpsFlags() []flag {
	return []flag{
		row("https-port", "<integer>", "Also serve HTTP over TLS, on this port. With --allow-http=false, serve HTTPS only. Default: none.",
			setWith(parseInt, func(o *Options) *int {
				o.HTTPS.Allow = true
				return &o.HTTPS.Port
			})),
		word("https-address", "Address of the HTTPS endpoint. Default: that of --http-address.",
			func(o *Options) *string { return &o.HTTPS.Address }),
		word("https-server-cert", "File with the server's certificate, PEM. All certificate files are reloaded when they change.",
			func(o *Options) *string { return &o.HTTPS.CertFile }),
		word("https-server-key", "File with the key of the certificate, PEM.",
			func(o *Options) *string { return &o.HTTPS.KeyFile }),
		word("https-root-cert", "File with the certificate authority of client certificates, PEM. Default: none; clients need no certificate.",
			func(o *Options) *string { return &o.HTTPS.RootCertFile }),
	}
}

func grpcFlags() []flag {
	return []flag{
		toggle("allow-grpc", "Serve gRPC.",
			func(o *Options) *bool { return &o.GRPC.Allow }),
		word("grpc-address", "Address of the gRPC endpoint, or unix:<path> for a Unix socket.",
			func(o *Options) *string { return &o.GRPC.Address }),
		number("grpc-port", "Port of the gRPC endpoint.",
			func(o *Options) *int { return &o.GRPC.Port }),
		toggle("reuse-grpc-port", "Share the gRPC port with other servers that also set this flag.",
			func(o *Options) *bool { return &o.GRPC.ReusePort }),
		pattern("grpc-header-forward-pattern", "Like --http-header-forward-pattern, for gRPC metadata. Default: none.",
			func(o *Options) *string { return &o.GRPC.ForwardPattern }),
		tritonLimit("grpc-infer-thread-count", "Number of gRPC inference threads.", "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.", parseInt,
			func(o *Options) *int { return &o.Threads.GRPCInfer }),
		number("grpc-infer-allocation-pool-size", "Number of requests kept for reuse.",
			func(o *Options) *int { return &o.Threads.AllocationPoolSize }),
		tritonLimit("grpc-max-response-pool-size", "Maximum number of responses that wait on one stream for a slow client.", "--grpc-max-response-pool-size must be greater than 0", parseInt,
			func(o *Options) *int { return &o.GRPC.MaxStreamResponses }),
		toggle("grpc-use-ssl", "Serve gRPC over TLS.",
			func(o *Options) *bool { return &o.GRPC.TLS.Enabled }),
		toggle("grpc-use-ssl-mutual", "Serve gRPC over TLS and require client certificates.",
			func(o *Options) *bool { return &o.GRPC.TLS.Mutual }),
		word("grpc-server-cert", "File with the server's certificate, PEM.",
			func(o *Options) *string { return &o.GRPC.TLS.CertFile }),
		word("grpc-server-key", "File with the key of the certificate, PEM.",
			func(o *Options) *string { return &o.GRPC.TLS.KeyFile }),
		word("grpc-root-cert", "File with the certificate authority of client certificates, PEM.",
			func(o *Options) *string { return &o.GRPC.TLS.RootFile }),
		row("grpc-infer-response-compression-level", "<string>", "Compression of responses: none, low, medium or high. Default: none.",
			setCompression),
		millis("grpc-keepalive-time", "Time without traffic before the server sends a ping, in milliseconds.",
			func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTime }),
		millis("grpc-keepalive-timeout", "Time to wait for the reply to a ping before closing the connection, in milliseconds.",
			func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTimeout }),
		toggle("grpc-keepalive-permit-without-calls", "Send pings even if no call is active.",
			func(o *Options) *bool { return &o.GRPC.PermitPingsWithoutCalls }),
		number("grpc-http2-max-pings-without-data", "Maximum number of consecutive pings without data between them; 0: no limit.",
			func(o *Options) *int { return &o.Threads.MaxPingsWithoutData }),
		millis("grpc-http2-min-recv-ping-interval-without-data", "Minimum time between pings of a client without data between them, in milliseconds. An earlier ping is a strike.",
			func(o *Options) *time.Duration { return &o.GRPC.MinPingInterval }),
		number("grpc-http2-max-ping-strikes", "Number of strikes before the server closes the connection; 0: no limit.",
			func(o *Options) *int { return &o.Threads.MaxPingStrikes }),
		millis("grpc-max-connection-age", "Maximum age of a connection, in milliseconds. Default: no limit.",
			func(o *Options) *time.Duration { return &o.GRPC.MaxConnectionAge }),
		millis("grpc-max-connection-age-grace", "Time for active calls to end after the maximum age, in milliseconds. Default: no limit.",
			func(o *Options) *time.Duration { return &o.GRPC.MaxConnectionAgeGrace }),
		row("grpc-restricted-protocol", "<<string>:<string>=<string>>", "Like --http-restricted-api, for gRPC.",
			setRestricted("protocol", func(o *Options) *[]server.Restriction { return &o.GRPC.Restricted })),
	}
}

func sageMakerFlags() []flag {
	return []flag{
		toggle("allow-sagemaker", "Serve the SageMaker protocol.",
			func(o *Options) *bool { return &o.SageMaker.Allow }),
		number("sagemaker-port", "Port of the SageMaker endpoint.",
			func(o *Options) *int { return &o.SageMaker.Port }),
		row("sagemaker-safe-port-range", "<<integer>-<integer>>", "Range of ports that the other endpoints may use.",
			setSafePorts),
		word("sagemaker-model-directory", "Directory of the models that the platform loads.",
			func(o *Options) *string { return &o.SageMaker.ModelDirectory }),
		number("sagemaker-thread-count", "Number of SageMaker threads.",
			func(o *Options) *int { return &o.Threads.SageMaker }),
	}
}

func vertexFlags() []flag {
	return []flag{
		toggle("allow-vertex-ai", "Serve the Vertex AI protocol. With AIP_MODE=PREDICTION the default is true.",
			func(o *Options) *bool { return &o.VertexAI.Allow }),
		number("vertex-ai-port", "Port of the Vertex AI endpoint. AIP_HTTP_PORT changes the default.",
			func(o *Options) *int { return &o.VertexAI.Port }),
		number("vertex-ai-thread-count", "Number of Vertex AI threads.",
			func(o *Options) *int { return &o.Threads.VertexAI }),
		word("vertex-ai-default-model", "Model for requests that name no model.",
			func(o *Options) *string { return &o.VertexAI.DefaultModel }),
	}
}

// openAIFlags are the flags of Triton's OpenAI front end, which is a separate program.
func openAIFlags() []flag {
	return []flag{
		row("openai-port", "<integer>", "Serve the OpenAI API on this port. Default: none.",
			setWith(parseInt, func(o *Options) *int {
				o.OpenAI.Allow = true
				return &o.OpenAI.Port
			})),
		word("openai-address", "Address of the OpenAI endpoint. Default: that of --http-address.",
			func(o *Options) *string { return &o.OpenAI.Address }),
		row("openai-backend", "<string>", "Request format for all models: vllm or tensorrtllm. Default: vllm for models of the vllm backend, tensorrtllm for all others.",
			setOpenAIFormat),
		bounded("openai-default-max-tokens", "max_tokens of requests that do not set it.",
			func(o *Options) *int { return &o.OpenAI.DefaultMaxTokens }),
		word("openai-tokenizer", "Directory of a tokenizer, or its tokenizer_config.json. Its template renders the chats of all models. Default: none.",
			func(o *Options) *string { return &o.OpenAI.Tokenizer }),
		word("openai-chat-template", "File with a template that replaces the tokenizer's. Default: none; without a tokenizer, chats are rejected.",
			func(o *Options) *string { return &o.OpenAI.ChatTemplate }),
		row("openai-tensor", "<<string>=<string>>", "<tensor>=<name>: the models' name for a tensor of OpenAI requests, such as text_input=PROMPT. May be given several times.",
			setOpenAITensor),
		row("openai-restricted-api", "<<string>:<string>=<string>>", "Like --http-restricted-api, for the OpenAI endpoint. Groups: "+
			strings.Join(openai.Groups(), ", ")+".",
			setOpenAIRestricted),
	}
}

// pageFlags are about the web page. Setting an address or a port enables it explicitly.
func pageFlags() []flag {
	return []flag{
		row("http-ui", "<boolean>", "Serve a web page that shows models, their states and statistics, and sends requests. Default: true on 127.0.0.1 if HTTP is served and the port is free.",
			func(p *parser, text string) (err error) {
				if p.o.Page.Allow, err = parseBool(text); err == nil {
					p.o.Page.Dispensable = false
				}
				return err
			}),
		row("http-ui-address", "<string>", "Address of the web page. Default: 127.0.0.1.",
			func(p *parser, text string) error {
				p.o.Page.Address, p.o.Page.Dispensable = text, false
				return nil
			}),
		row("http-ui-port", "<integer>", "Port of the web page. Default: 8003.",
			func(p *parser, text string) (err error) {
				p.o.Page.Port, err = parseInt(text)
				p.o.Page.Dispensable = false
				return err
			}),
		row("http-ui-host", "<string>", "Additional host name by which browsers may reach the web page; addresses and localhost are always allowed. May be given several times. Default: none.",
			func(p *parser, text string) error {
				p.o.Page.Hosts = append(p.o.Page.Hosts, text)
				return admission.CheckHost(text)
			}),
	}
}

// socketFlags have the permissions of all Unix sockets.
func socketFlags() []flag {
	return []flag{
		row("unix-socket-mode", "<octal>", "Permissions of Unix sockets (--http-address=unix:<path>, --grpc-address=unix:<path>). Default: 0660.",
			func(p *parser, text string) error {
				mode, err := strconv.ParseUint(text, 8, 32)
				if err != nil || mode == 0 || mode > 0o777 {
					return fmt.Errorf("%q is not a file mode, want an octal number from 1 to 0777", text)
				}
				p.o.UnixSocket.Mode = fs.FileMode(mode)
				return nil
			}),
		row("unix-socket-owner", "<string>", "Owner of the Unix sockets: user, user:group or :group, by name or number. Default: those of the server.",
			func(p *parser, text string) (err error) {
				owner, group, _ := strings.Cut(text, ":")
				if p.o.UnixSocket.UID, err = parseID(owner, func() (string, error) {
					u, err := user.Lookup(owner)
					if err != nil {
						return "", err
					}
					return u.Uid, nil
				}); err != nil {
					return err
				}
				p.o.UnixSocket.GID, err = parseID(group, func() (string, error) {
					g, err := user.LookupGroup(group)
					if err != nil {
						return "", err
					}
					return g.Gid, nil
				})
				return err
			}),
	}
}

// parseID parses the ID of a user or a group; lookup finds the ID of a name. The result is nil for
// "".
func parseID(text string, lookup func() (string, error)) (*int, error) {
	if text == "" {
		return nil, nil
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		if text, err = lookup(); err == nil {
			id, err = strconv.Atoi(text)
		}
	}
	return &id, err
}

func metricsFlags() []flag {
	return []flag{
		toggle("allow-metrics", "Serve metrics.",
			func(o *Options) *bool { return &o.Metrics.Allow }),
		toggle("allow-gpu-metrics", "Include GPU metrics.",
			func(o *Options) *bool { return &o.Metrics.Series.GPU }),
		toggle("allow-cpu-metrics", "Include CPU and memory metrics.",
			func(o *Options) *bool { return &o.Metrics.Series.CPU }),
		toggle("allow-status", "Serve /status on the metrics endpoint, for nereid top: models, instances, errors with tracebacks and the last log lines.",
			func(o *Options) *bool { return &o.Metrics.AllowStatus }),
		word("metrics-address", "Address of the metrics endpoint. Default: that of --http-address.",
			func(o *Options) *string { return &o.Metrics.Address }),
		number("metrics-port", "Port of the metrics endpoint.",
			func(o *Options) *int { return &o.Metrics.Port }),
		typed("metrics-interval-ms", "<integer>", "Time between two measurements of CPUs, memory and GPUs, including those of instance processes, in milliseconds.",
			parseMillis64, inMillis, func(o *Options) *time.Duration { return &o.Metrics.Series.Interval }),
		row("metrics-config", "<<string>=<string>>", "Metrics: counter_latencies (default true), summary_latencies (false), histogram_latencies (false), stage_histograms (true; all: with every bucket), summary_quantiles (<quantile>:<error>, separated by commas). Limits of custom metrics: custom_series_per_model (10000), custom_series (100000), custom_bytes_per_model (33554432). May be given several times.",
			setMetricsConfig),
	}
}

// endpointGroups are the groups that --http-restricted-api and --grpc-restricted-protocol can
// restrict.
var endpointGroups = []string{
	"health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging",
}

// setRestricted returns the setter for "<groups>:<header>=<value>". The word in error texts is
// "api" or "protocol".
func setRestricted(what string, field func(*Options) *[]server.Restriction) func(*parser, string) error {
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
		func(o *Options) *[]server.Restriction { return &o.OpenAI.Restricted })(p, text)
}

func setGroups(flag, what string, check func(string) error, field func(*Options) *[]server.Restriction) func(*parser, string) error {
	return func(p *parser, text string) error {
		s, ok := parseSetting(text, ":")
		if !ok || s.name == "" {
			return fmt.Errorf("%s option format is '<config name>:<setting>=<value>'. Got %s", flag, text)
		}
		restricted := field(p.o)
		for name := range strings.SplitSeq(s.name, ",") {
			if err := check(name); err != nil {
				return err
			}
			if slices.ContainsFunc(*restricted, func(r server.Restriction) bool { return slices.Contains(r.Groups, name) }) {
				return fmt.Errorf("restricted %s '%s' can not be specified in multiple config groups", what, name)
			}
			*restricted = append(*restricted, server.Restriction{Groups: []string{name}, Header: s.key, Value: s.value})
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
