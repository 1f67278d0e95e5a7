package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
	"github.com/rs/zerolog"
)

// protocolVersion is the release of Triton whose protocol, flags and texts are
// served; clients see it as the server's version.
const protocolVersion = "2.51.0"

// rooms are the parts of a server, made and joined.
type rooms struct {
	account  *memory.Account
	requests *shm.Pool
	python   *python.Backend
	registry *models.Registry
	fronts   []front
	// budget bounds the connections of all fronts.
	budget *connections.Budget
	// unusable is why the repository cannot be opened, nil if it has been.
	unusable error
}

// front is an endpoint that listens and serves.
type front struct {
	name, title, where string
	Listen             func() error
	Run                func(context.Context) error
}

const metricsService = "Metrics"

// newRooms makes all parts; nothing listens and no model is loaded yet.
func newRooms(o *Options, settings *LogSettings, log zerolog.Logger, stdout, stderr io.Writer) (_ *rooms, err error) {
	r := &rooms{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	repository, err := models.OpenRepository(o.Repository.Paths, models.RepositoryOptions{
		ConfigName: o.Repository.ConfigName, DisableAutoComplete: o.Repository.DisableAutoCompleteConfig,
		AgentDirectory: o.Repository.AgentDirectory, Namespacing: o.Repository.Namespacing,
	})
	if err != nil {
		if o.ExitOnError {
			return nil, err
		}
		r.unusable, repository = err, &models.Repository{}
	}
	counters, err := o.metrics(log)
	if err != nil {
		return nil, err
	}
	cacheSize, err := cache.ParseSettings(o.Cache.Settings, o.Cache.Directory, memory.Limit())
	if err != nil {
		return nil, err
	}
	if err := r.makeAccount(int64(o.RequestMemoryBytes), cacheSize, counters, log); err != nil {
		return nil, err
	}
	responses, err := r.makeCache(cacheSize, counters, log)
	if err != nil {
		return nil, err
	}
	backends := make(map[string]backend.Backend)
	config, err := python.ParseConfig(o.settingsOf("python"))
	if err == nil {
		r.python, err = python.New(python.Environment{
			Config: config, Requests: r.requests, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log,
			Stdout: stdout, Stderr: stderr,
			LogLevels: func() python.LogLevels {
				return python.LogLevels{Info: settings.Info(), Warning: settings.Warning(), Error: settings.Error(), Verbose: settings.Verbose()}
			},
			Metrics: counters, HostPolicies: o.Memory.HostPolicies, Memory: r.account, SoleParent: true,
		})
	}
	if err != nil {
		// Triton finds this out when the first model wants the backend.
		backends["python"] = brokenBackend{err}
	} else {
		backends["python"] = r.python
	}
	r.registry = models.NewRegistry(models.RegistryConfig{
		Repository: repository, Unusable: r.unusable != nil, Backends: backends, BackendDirectory: o.Backends.Directory, BackendSettings: o.ownSettingsOf,
		StrictReadiness: o.Repository.StrictReadiness, Allocate: r.lend(memory.Stacked), Padding: r.lend(memory.Padding), Memory: r.account,
		Explicit: o.Repository.Control == ControlExplicit, Startup: o.Repository.StartupModels, PollInterval: o.pollInterval(),
		LoadThreads: o.Repository.LoadThreads, LoadRetries: o.Repository.LoadRetries, Limiter: o.limiter(),
		UnloadTimeout: config.UnloadTimeout, DelayRequests: o.Delay.Requests, DelayBacklog: o.Delay.Backlog, Metrics: counters, Cache: responses, Log: log,
	})
	return r, r.makeFronts(o, settings, counters, log)
}

// limiter makes the rate limiter that the command line asks for, nil if none.
func (o *Options) limiter() *scheduler.Limiter {
	if !o.RateLimit.ExecutionCount {
		return nil
	}
	var explicit []scheduler.Resource
	for _, r := range o.RateLimit.Resources {
		device := scheduler.AnyDevice
		if r.Device >= 0 {
			device = int32(r.Device)
		}
		explicit = append(explicit, scheduler.Resource{Name: r.Name, Count: int64(r.Count), Device: device})
	}
	return scheduler.NewLimiter(explicit)
}

// pollInterval is how often the repository is looked at, 0 for never again.
func (o *Options) pollInterval() time.Duration {
	if o.Repository.Control != ControlPoll {
		return 0
	}
	const longest = 1 << 31 // seconds
	return time.Duration(min(max(o.Repository.PollSeconds, 0), longest)) * time.Second
}

// makeCache makes the response cache, nil if its size is 0.
func (r *rooms) makeCache(size int64, counters *metrics.Registry, log zerolog.Logger) (*cache.Cache, error) {
	if size == 0 {
		return nil, nil
	}
	c, err := cache.New(cache.Config{Size: size, Allocate: r.lend(memory.Cache)})
	if err != nil {
		return nil, err
	}
	log.Info().Int64("bytes", size).Msg("responses are cached")
	counters.Cache(func() metrics.CacheFigures {
		s := c.Stats()
		return metrics.CacheFigures{
			Used: s.Used, Size: s.Size, Entries: s.Entries, Lookups: s.Lookups, Hits: s.Hits, Misses: s.Misses,
			Evictions: s.Evictions, LookupTime: s.LookupTime, InsertionTime: s.InsertionTime,
		}
	})
	return c, nil
}

// brokenBackend cannot open models, and says why.
type brokenBackend struct{ err error }

func (b brokenBackend) Open(backend.Env) (backend.Model, error) { return nil, b.err }

// close ends what shutdown leaves.
func (r *rooms) close() {
	if r.python != nil {
		r.python.Close()
	}
	if r.requests != nil {
		r.requests.Close()
	}
}

// makeFronts makes the endpoints in the order in which they start.
func (r *rooms) makeFronts(o *Options, settings *LogSettings, counters *metrics.Registry, log zerolog.Logger) error {
	add := func(name, title, address string, port int, listen func() error, run func(context.Context) error) {
		r.fronts = append(r.fronts, front{name, title, net.JoinHostPort(address, strconv.Itoa(port)), listen, run})
	}
	logging := logControl{settings, func() {}}
	if r.python != nil {
		logging.changed = r.python.LogLevelsChanged
	}
	parts := server.Parts{Core: r.registry, Allocate: r.lend(memory.Blocks), Open: r.open, Memory: r.account, Logging: logging}
	all := &connections.Budget{}
	if r.python != nil {
		all.Needs = r.python.Descriptors
	}
	r.budget = all
	if o.GRPC.Allow {
		g, err := server.NewGRPC(o.grpcConfig(all), parts, log)
		if err != nil {
			return err
		}
		add("GRPC", "GRPCInferenceService", o.GRPC.Address, o.GRPC.Port, g.Listen, g.Run)
	}
	if o.HTTP.Allow {
		h, err := server.NewHTTP(o.httpConfig(all), parts, log)
		if err != nil {
			return err
		}
		add("HTTP", "HTTPService", o.HTTP.Address, o.HTTP.Port, h.Listen, h.Run)
	}
	if o.Metrics.Allow {
		m, err := server.NewMetricsHTTP(o.metricsConfig(all), counters.Handler(), log)
		if err != nil {
			return err
		}
		add(metricsService, "Metrics Service", o.Metrics.Address, o.Metrics.Port, m.Listen, m.Run)
	}
	return nil
}

func (o *Options) httpConfig(all *connections.Budget) server.HTTPConfig {
	h := o.HTTP
	c := h.Limits
	c.Address, c.Port, c.ReusePort, c.Connections = h.Address, h.Port, h.ReusePort, all
	c.ServerName, c.ServerVersion = o.ServerID, protocolVersion
	c.MaxInputBytes, c.ForwardPattern, c.Restricted = h.MaxInputBytes, h.ForwardPattern, restrictions(h.Restricted)
	// Half of the time is for requests in flight, and for models.
	c.ExitTimeout, c.DrainTime = o.exitTimeout(), min(c.DrainTime, o.exitTimeout()/2)
	return c
}

func (o *Options) metricsConfig(all *connections.Budget) server.HTTPConfig {
	c := o.HTTP.Limits
	c.Address, c.Port, c.Connections, c.DrainTime = o.Metrics.Address, o.Metrics.Port, all, 0
	return c
}

func (o *Options) grpcConfig(all *connections.Budget) server.GRPCConfig {
	millis := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	g := o.GRPC
	c := g.Limits
	c.Address, c.Port, c.ReusePort, c.Connections = g.Address, g.Port, g.ReusePort, all
	c.ServerName, c.ServerVersion = o.ServerID, protocolVersion
	c.Restricted, c.ForwardPattern, c.Compression = restrictions(g.Restricted), g.ForwardPattern, g.Compression
	c.TLS = server.GRPCTLS{
		Enabled: g.UseTLS || g.MutualTLS, Mutual: g.MutualTLS, CertFile: g.CertFile, KeyFile: g.KeyFile, RootFile: g.RootCertFile,
	}
	c.KeepaliveTime, c.KeepaliveTimeout = millis(g.KeepaliveMillis), millis(g.KeepaliveTimeoutMillis)
	c.PermitPingsWithoutCalls, c.MinPingInterval = g.KeepaliveWithoutCalls, millis(g.MinPingIntervalWithoutDataMillis)
	c.MaxConnectionAge, c.MaxConnectionAgeGrace = millis(g.MaxConnectionAgeMillis), millis(g.MaxConnectionAgeGraceMillis)
	c.MaxStreamResponses, c.ExitTimeout = g.ResponsePoolSize, o.exitTimeout()
	return c
}

// restrictions gives each group of endpoints the header that it asks for.
func restrictions(byGroup map[string]Restriction) []server.Restriction {
	var list []server.Restriction
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		list = append(list, server.Restriction{Groups: []string{group}, Header: byGroup[group].Header, Value: byGroup[group].Value})
	}
	return list
}

// metrics makes the metrics that the command line asks for.
func (o *Options) metrics(log zerolog.Logger) (*metrics.Registry, error) {
	c := metrics.Config{
		CPU: o.Metrics.AllowCPU, Interval: time.Duration(o.Metrics.IntervalMillis) * time.Millisecond,
		PinnedPoolBytes: o.Memory.PinnedPoolBytes, NoCustom: !o.Metrics.Allow, Log: log,
	}
	for _, s := range o.Metrics.Config {
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
		case "custom_series_per_model":
			c.ModelSeries, err = parseLimit(s.Value)
		case "custom_series":
			c.Series, err = parseLimit(s.Value)
		case "summary_quantiles":
			c.Quantiles, err = parseQuantiles(s.Value)
		default:
			log.Warn().Msgf("--metrics-config: the setting '%s' is not known", s.Key)
		}
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArg, "--metrics-config %s=%s: %v", s.Key, s.Value, err)
		}
	}
	return metrics.New(c), nil
}

// parseLimit reads a number of series.
func parseLimit(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("it is %q, want a number of series, 1 or more", text)
	}
	return n, nil
}

// parseQuantiles reads "<quantile>:<error>,…".
func parseQuantiles(text string) (map[float64]float64, error) {
	quantiles := make(map[float64]float64)
	for pair := range strings.SplitSeq(text, ",") {
		quantile, allowed, ok := strings.Cut(pair, ":")
		q, err := strconv.ParseFloat(quantile, 64)
		e, err2 := strconv.ParseFloat(allowed, 64)
		if !ok || err != nil || err2 != nil || q < 0 || q > 1 || e < 0 || e > 1 {
			return nil, errors.New("want <quantile>:<error> with numbers between 0 and 1, separated by commas")
		}
		quantiles[q] = e
	}
	return quantiles, nil
}

// startRows are the backends that models use and the models that loading was
// tried for, as the start-up tables show them.
func (r *rooms) startRows(o *Options) (backends []backendRow, models []modelRow) {
	used := make(map[string]bool)
	for _, s := range r.registry.Attempted() {
		if s.Version == 0 {
			models = append(models, modelRow{s.Name, "-", "Not loaded: No model version was found"})
			continue
		}
		if s.Backend != "" {
			used[s.Backend] = true
			used["python"] = used["python"] || s.PythonBased
		}
		status := string(s.State)
		if s.Reason != "" {
			status += ": " + s.Reason
		}
		models = append(models, modelRow{s.Name, strconv.FormatInt(s.Version, 10), status})
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		row := backendRow{name: name, path: "built in", config: o.backendConfigJSON(name)}
		if script := o.scriptOf(name); script != "" {
			row.path = script
		}
		backends = append(backends, row)
	}
	return backends, models
}
