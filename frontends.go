package nereid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/certificates"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/page"
	"github.com/nereid-serving/nereid/server/platforms"
	"github.com/nereid-serving/nereid/server/rest"
)

// Names of the front ends in errors and log lines.
const (
	grpcService      = "GRPC"
	httpService      = "HTTP"
	httpsService     = "HTTPS"
	sageMakerService = "Sagemaker"
	vertexService    = "Vertex AI"
	openAIService    = "OpenAI"
	metricsService   = "Metrics"
	pageService      = "Page"
)

// frontEnd is a protocol's server, created by package server.
type frontEnd interface {
	Listen() error
	Addr() net.Addr
	Run(context.Context) error
	Leave() // asks clients to go elsewhere, while Run continues
}

// front is an endpoint that listens and serves.
type front struct {
	frontEnd
	name, title, where string
	address            string
	port               int // checked before models are loaded; 0 if other servers share it
	listening, ran     bool
	// dispensable means that the server starts without it if it cannot listen.
	dispensable bool
}

// abandon closes the socket of a front end that listens but has never run.
func (f *front) abandon() {
	if !f.listening || f.ran {
		return
	}
	ended, end := context.WithCancel(context.Background())
	end()
	_ = f.Run(ended) // it has served no client
}

// HTTPAddr returns the address of the HTTP endpoint, or nil if it is disabled or before Listen.
func (s *Server) HTTPAddr() net.Addr { return s.addr(httpService) }

// HTTPSAddr returns the address of the HTTPS endpoint, or nil if it is disabled or before Listen.
func (s *Server) HTTPSAddr() net.Addr { return s.addr(httpsService) }

// GRPCAddr returns the address of the gRPC endpoint, or nil if it is disabled or before Listen.
func (s *Server) GRPCAddr() net.Addr { return s.addr(grpcService) }

// SageMakerAddr returns the address of the SageMaker endpoint, or nil if it is disabled or before
// Listen.
func (s *Server) SageMakerAddr() net.Addr { return s.addr(sageMakerService) }

// VertexAIAddr returns the address of the Vertex AI endpoint, or nil if it is disabled or before
// Listen.
func (s *Server) VertexAIAddr() net.Addr { return s.addr(vertexService) }

// OpenAIAddr returns the address of the OpenAI endpoint, or nil if it is disabled or before Listen.
func (s *Server) OpenAIAddr() net.Addr { return s.addr(openAIService) }

// MetricsAddr returns the address of the metrics endpoint, or nil if it is disabled or before
// Listen.
func (s *Server) MetricsAddr() net.Addr { return s.addr(metricsService) }

// PageAddr returns the address of the web page, or nil if it is disabled or before Listen.
func (s *Server) PageAddr() net.Addr { return s.addr(pageService) }

func (s *Server) addr(name string) net.Addr {
	for _, f := range s.fronts {
		if f.name == name && f.listening {
			return f.Addr()
		}
	}
	return nil
}

// makeFronts creates the front ends in the order in which they start.
func (s *Server) makeFronts(counters *metrics.Registry) error {
	o := &s.options
	var failure error // the first
	add := func(name, title, address string, port int, end frontEnd, err error) {
		failure = cmp.Or(failure, err)
		f := &front{frontEnd: end, name: name, title: title, where: connections.JoinHostPort(address, port), address: address, port: port}
		if name == grpcService && o.GRPC.ReusePort || name == httpService && o.HTTP.ReusePort {
			f.port = 0 // a check of the port would take connections from the servers that share it
		}
		s.fronts = append(s.fronts, f)
	}
	logging := logControl{o.Logging, func() {}}
	if s.supervisor != nil {
		logging.changed = s.supervisor.LogLevelsChanged
	}
	parts := server.Parts{Core: s.recorder.Around(s.registry), Allocate: s.lend(budget.Blocks), Open: s.open, Memory: s.account, Regions: s.regions, Traces: s.traces,
		Samples: counters.Samples, Logging: logging}
	if s.recorder != nil {
		parts.IsReplayKey = s.recorder.IsKey
	}
	all := &connections.Budget{}
	if s.supervisor != nil {
		all.Needs = s.supervisor.Descriptors
	}
	if o.GRPC.Allow {
		end, err := grpc.New(o.grpcConfig(all), parts, s.log)
		add(grpcService, "GRPCInferenceService", o.GRPC.Address, o.GRPC.Port, end, err)
	}
	if o.HTTP.Allow {
		end, err := rest.New(o.httpConfig(all), parts, s.log)
		add(httpService, "HTTPService", o.HTTP.Address, o.HTTP.Port, end, err)
	}
	if o.HTTPS.Allow {
		end, err := rest.New(o.httpsConfig(all), parts, s.log)
		add(httpsService, "HTTPSService", o.httpsAddress(), o.HTTPS.Port, end, err)
	}
	if o.SageMaker.Allow {
		c := o.SageMaker.SageMakerConfig
		c.REST, c.Repositories = o.configAt(all, PlatformAddress, o.SageMaker.Port), s.registry
		end, err := platforms.NewSageMaker(c, parts, s.log)
		add(sageMakerService, "Sagemaker HTTPService", PlatformAddress, o.SageMaker.Port, end, err)
	}
	if o.VertexAI.Allow {
		c := o.VertexAI.VertexConfig
		c.REST, c.Exposition = o.configAt(all, PlatformAddress, o.VertexAI.Port), counters.Handler()
		end, err := platforms.NewVertex(c, parts, s.log)
		add(vertexService, "Vertex AI HTTPService", PlatformAddress, o.VertexAI.Port, end, err)
	}
	if o.OpenAI.Allow {
		c := o.openAIConfig(all)
		c.Exposition = counters.Handler()
		end, err := openai.New(c, parts, s.log)
		add(openAIService, "OpenAI HTTPService", o.openAIAddress(), o.OpenAI.Port, end, err)
	}
	if o.Metrics.Allow {
		shown := s.status
		if !o.Metrics.AllowStatus {
			shown = nil
		}
		end, err := rest.NewMetrics(o.metricsConfig(all), s.account, counters.Handler(), shown, s.log)
		add(metricsService, "Metrics Service", o.metricsAddress(), o.Metrics.Port, end, err)
	}
	if o.Page.Allow {
		end, err := page.New(o.pageConfig(all), parts, s.registry, s.status, s.log)
		add(pageService, "page for browsers", o.pageAddress(), o.Page.Port, end, err)
		s.fronts[len(s.fronts)-1].dispensable = o.Page.Dispensable
	}
	return failure
}

func (o *Options) httpConfig(all *connections.Budget) rest.Config {
	c := o.HTTP.Config
	c.Connections, c.UnixSocket = all, o.UnixSocket
	c.ServerName, c.ServerVersion = o.ServerID, ProtocolVersion
	c.Addresses, c.Hosts = o.otherAddresses(), o.Page.Hosts
	// The other half of the time is for requests in flight, and for models.
	c.ExitTimeout, c.DrainTime = o.exitTimeout(), min(c.DrainTime, o.exitTimeout()/2)
	return c
}

// otherAddresses returns the addresses of the other endpoints for the HTTP endpoint's index page. A
// port that the kernel chooses is not known yet.
func (o *Options) otherAddresses() (list []string) {
	for _, e := range []struct {
		on         bool
		address    string
		port       int
		name, path string
	}{
		{o.GRPC.Allow, o.GRPC.Address, o.GRPC.Port, "gRPC", ""},
		{o.Metrics.Allow, o.metricsAddress(), o.Metrics.Port, "Metrics for Prometheus", ", /metrics"},
		{o.HTTPS.Allow, o.httpsAddress(), o.HTTPS.Port, "HTTPS", ""},
		{o.OpenAI.Allow, o.openAIAddress(), o.OpenAI.Port, "OpenAI's API", ", /v1"},
	} {
		where := "port " + strconv.Itoa(e.port)
		_, socket := connections.UnixPath(e.address)
		if socket {
			where = e.address
		}
		if e.on && (e.port > 0 || socket) {
			list = append(list, e.name+": "+where+e.path)
		}
	}
	if o.Page.Allow && o.Page.Port > 0 {
		list = append(list, "Page for browsers: http://"+net.JoinHostPort(o.pageAddress(), strconv.Itoa(o.Page.Port)))
	}
	return list
}

// OtherAddress is the default address of the endpoints that share that of HTTP.
func (o *Options) OtherAddress() string {
	if _, ok := connections.UnixPath(o.HTTP.Address); ok {
		return "127.0.0.1"
	}
	return o.HTTP.Address
}

func (o *Options) httpsAddress() string { return cmp.Or(o.HTTPS.Address, o.OtherAddress()) }

func (o *Options) httpsConfig(all *connections.Budget) rest.Config {
	c := o.configAt(all, o.httpsAddress(), o.HTTPS.Port)
	c.Certificates = certificates.Files{Cert: o.HTTPS.CertFile, Key: o.HTTPS.KeyFile, Root: o.HTTPS.RootCertFile}
	return c
}

// PlatformAddress is the address at which SageMaker and Vertex AI expect their endpoints. No option
// changes it.
const PlatformAddress = "0.0.0.0"

// configAt is the config of HTTP at another address.
func (o *Options) configAt(all *connections.Budget, address string, port int) rest.Config {
	c := o.httpConfig(all)
	c.Address, c.Port, c.ReusePort = address, port, false
	return c
}

func (o *Options) openAIAddress() string { return cmp.Or(o.OpenAI.Address, o.OtherAddress()) }

func (o *Options) openAIConfig(all *connections.Budget) openai.Config {
	c := o.OpenAI.Config
	c.REST, c.LoadsOnRequest = o.configAt(all, o.openAIAddress(), o.OpenAI.Port), o.Repository.Control == ControlExplicit
	return c
}

func (o *Options) metricsAddress() string { return cmp.Or(o.Metrics.Address, o.OtherAddress()) }

func (o *Options) metricsConfig(all *connections.Budget) rest.Config {
	c := rest.Config{Config: o.HTTP.Config.Config, UnixSocket: o.UnixSocket}
	c.Address, c.Port, c.Connections, c.DrainTime = o.metricsAddress(), o.Metrics.Port, all, 0
	c.Hosts = o.Page.Hosts
	return c
}

func (o *Options) pageAddress() string { return cmp.Or(o.Page.Address, "127.0.0.1") }

func (o *Options) pageConfig(all *connections.Budget) page.Config {
	c := page.Config{Config: o.configAt(all, o.pageAddress(), o.Page.Port), Explicit: o.Repository.Control == ControlExplicit, Build: o.Build}
	c.DrainTime = 0 // an open browser does not delay the shutdown
	return c
}

func (o *Options) grpcConfig(all *connections.Budget) grpc.Config {
	c := o.GRPC.Config
	c.Connections, c.UnixSocket = all, o.UnixSocket
	c.ServerName, c.ServerVersion = o.ServerID, ProtocolVersion
	c.TLS.Enabled = c.TLS.Enabled || c.TLS.Mutual
	c.ExitTimeout = o.exitTimeout()
	return c
}

func (o *Options) exitTimeout() time.Duration { return max(o.ExitTimeout, 0) }

// pollInterval returns the interval between polls of the repository; 0: it is not polled.
func (o *RepositoryOptions) pollInterval() time.Duration {
	if o.Control != ControlPoll || o.Develop {
		return 0
	}
	return max(o.PollInterval, 0)
}

// startError returns the log line about a front end that cannot listen.
func (f *front) startError(err error, inUse bool) error {
	if inUse {
		return fmt.Errorf("failed to start %s service: Unavailable - Socket '%s' already in use ", f.name, f.where)
	}
	code := infer.Unavailable
	var known *infer.Error
	if errors.As(err, &known) {
		code = known.Code
	}
	return fmt.Errorf("failed to start %s service: %s - %w", f.name, code, err)
}
