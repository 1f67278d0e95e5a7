package tracing

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/panics"
)

// defaultURL is the address of a collector on this machine.
const defaultURL = "http://localhost:4318/v1/traces"

// collector turns traces into spans, which the SDK sends by OTLP over HTTP.
type collector struct {
	provider *sdk.TracerProvider
	tracer   oteltrace.Tracer
	client   *http.Client
	now      func() int64
}

// batching are the settings of the SDK's span processor.
type batching struct{ queue, delay, export int }

// newCollector returns the collector of mode opentelemetry and the settings that clients see: the
// given ones, and the processor's defaults.
func newCollector(config *Config) (*collector, []Pair, error) {
	getenv := config.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	url := ""
	attributes := []attribute.KeyValue{attribute.String("service.name", cmp.Or(getenv("OTEL_SERVICE_NAME"), "triton-inference-server"))} // bound: the environment and the command line
	for pair := range strings.SplitSeq(getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			attributes = append(attributes, attribute.String(strings.TrimSpace(key), strings.TrimSpace(value)))
		}
	}
	given := map[string]bool{}
	b := batching{}
	numbers := []struct {
		key, variable, fallback string
		to                      *int
	}{
		{SettingQueueSize, "OTEL_BSP_MAX_QUEUE_SIZE", "2048", &b.queue},
		{SettingDelay, "OTEL_BSP_SCHEDULE_DELAY", "5000", &b.delay},
		{SettingExportBatch, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512", &b.export},
	}
	last := map[string]string{}
	shown := config.Settings[:len(config.Settings):len(config.Settings)] // bound: the command line and the numbers
	for _, s := range config.Settings {
		given[s.Key], last[s.Key] = true, s.Value // bound: the command line
		switch s.Key {
		case SettingURL:
			url = s.Value
		case SettingResource:
			key, value, ok := strings.Cut(s.Value, "=")
			if !ok {
				return nil, nil, infer.Errorf(infer.InvalidArg, "trace setting resource is %q, want <key>=<value>", s.Value)
			}
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	for _, n := range numbers {
		text := cmp.Or(last[n.key], getenv(n.variable), n.fallback)
		value, err := strconv.Atoi(text)
		if err != nil || value <= 0 {
			return nil, nil, infer.Errorf(infer.InvalidArg, "trace setting %s is %q, want a number above 0", n.key, text)
		}
		*n.to = value
		if !given[n.key] {
			shown = append(shown, Pair{Key: n.key, Value: text})
		}
	}
	c, err := connect(url, getenv, attributes, b, config.Log)
	if err != nil {
		return nil, nil, err
	}
	c.now = config.Now
	return c, shown, nil
}

func connect(url string, getenv func(string) string, attributes []attribute.KeyValue, b batching, log zerolog.Logger) (*collector, error) {
	c := &collector{client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute}}}
	options := []otlptracehttp.Option{otlptracehttp.WithHTTPClient(c.client)}
	elsewhere := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + getenv("OTEL_EXPORTER_OTLP_ENDPOINT") // which the library reads
	if url != "" || elsewhere == "" {
		url = cmp.Or(url, defaultURL)
		if !strings.Contains(url, "://") {
			url = "http://" + url
		}
		options = append(options, otlptracehttp.WithEndpointURL(url))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(attributes...))
	if err != nil {
		return nil, fmt.Errorf("describe the server to the collector of traces: %w", err)
	}
	c.provider = sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(chosen{}), sdk.WithResource(about),
		sdk.WithBatcher(&exporting{inner: exporter, log: log}, sdk.WithMaxQueueSize(b.queue), sdk.WithMaxExportBatchSize(b.export),
			sdk.WithBatchTimeout(time.Duration(b.delay)*time.Millisecond)))
	c.tracer = c.provider.Tracer("triton-server")
	return c, nil
}

// exporting logs the first failure to send spans, and the next success.
type exporting struct {
	inner   sdk.SpanExporter
	log     zerolog.Logger
	failing bool // ExportSpans is not called concurrently
}

// ExportSpans implements sdk.SpanExporter. The spans of a failure are lost.
func (e *exporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := panics.Run(e.log, panics.Server, func() error { return e.inner.ExportSpans(ctx, spans) })
	if err != nil && !e.failing {
		e.log.Error().Err(err).Msg("traces are lost")
	}
	e.failing = err != nil
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporting) Shutdown(ctx context.Context) error { return e.inner.Shutdown(ctx) }

// ids are the ids of a future span; chosen takes them from the span's context.
type ids struct {
	trace oteltrace.TraceID
	span  oteltrace.SpanID
}

type idsKey struct{}

// chosen implements sdk.IDGenerator with the ids that models have been given.
type chosen struct{}

// NewIDs implements sdk.IDGenerator.
func (chosen) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	is, _ := ctx.Value(idsKey{}).(ids)
	return is.trace, is.span
}

// NewSpanID implements sdk.IDGenerator.
func (chosen) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	is, _ := ctx.Value(idsKey{}).(ids)
	return is.span
}

// retire implements sink. Spans are sent when they are made.
func (c *collector) retire(*setting) {}

// close implements sink.
func (c *collector) close(ctx context.Context) error {
	defer c.client.CloseIdleConnections()
	if err := c.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

// keep implements sink: it makes the spans of a tree. The client's request has its own span for the
// front end, above the span of its model.
func (c *collector) keep(tree *trace.Tree, _ *setting) {
	records, config := tree.Records(), tree.Config()
	if !config.Timestamps { // spans cannot contain tensors
		return
	}
	s := spans{collector: c, trace: oteltrace.TraceID(config.TraceID), offset: time.Now().UnixNano() - c.now()}
	ctx := context.Background()
	if config.Parent != (trace.SpanID{}) {
		state, _ := oteltrace.ParseTraceState(config.State) // read from a client's header by the same library
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: s.trace, SpanID: oteltrace.SpanID(config.Parent), TraceFlags: oteltrace.FlagsSampled, TraceState: state, Remote: true,
		}))
	}
	above := map[uint64]context.Context{}
	for i, r := range records {
		front, model, compute, own := divide(r.Entries)
		parent, known := above[r.ParentID]
		if i == 0 {
			parent, known = s.span(ctx, "InferRequest", trace.NewSpanID(), front), true
		}
		if !known || len(model) == 0 {
			continue
		}
		within := s.span(parent, r.Model, r.Span, model, attributesOf(r)...)
		above[r.ID] = within // bound: the requests of the tree
		for _, execution := range compute {
			s.span(within, "compute", trace.NewSpanID(), execution)
		}
		for _, one := range own {
			s.own(within, one)
		}
	}
}

// work is a span that a backend has begun by an activity, with its events.
type work struct {
	name   string
	events []trace.Entry // bound: the entries of the request
	below  []*work
}

// own makes the span of a backend's work, and the spans below it.
func (s *spans) own(ctx context.Context, w *work) {
	within := s.span(ctx, w.name, trace.NewSpanID(), w.events)
	for _, one := range w.below {
		s.own(within, one)
	}
}

// divide divides the entries of a request among the spans: of the front end, of the model's queue,
// of each execution, and of activities of the backend. A span that its backend has not ended gets
// the model's end, as an event without a name.
func divide(entries []trace.Entry) (front, model []trace.Entry, compute [][]trace.Entry, own []*work) { // bound: the entries of the request
	var open []*work // each below the one before it; bound: the entries of the request
	tooDeep := 0     // starts that are events, whose ends are events too
	for _, e := range entries {
		if e.Own {
			name, starts := strings.CutSuffix(string(e.Name), "_START")
			starts = starts && name != ""
			ends := strings.HasSuffix(string(e.Name), "_END")
			switch {
			case starts && len(open) == mostOpen:
				tooDeep++
			case ends && tooDeep > 0:
				tooDeep--
				ends = false
			case starts:
				w := &work{name: name}
				if n := len(open); n > 0 {
					open[n-1].below = append(open[n-1].below, w) // bound: the entries of the request
				} else {
					own = append(own, w)
				}
				open = append(open, w)
			case len(open) == 0:
				model = append(model, e)
				continue
			}
			last := open[len(open)-1]
			last.events = append(last.events, e)
			if ends {
				open = open[:len(open)-1]
			}
			continue
		}
		switch e.Name {
		case trace.Model:
		case trace.RequestStart, trace.QueueStart, trace.RequestEnd:
			model = append(model, e)
		case trace.ComputeStart:
			compute = append(compute, []trace.Entry{e})
		case trace.ComputeInputEnd, trace.ComputeOutputStart, trace.ComputeEnd:
			compute[len(compute)-1] = append(compute[len(compute)-1], e)
		default:
			front = append(front, e)
		}
	}
	if n := len(model); n > 0 {
		for _, w := range open {
			w.events = append(w.events, trace.Entry{At: model[n-1].At})
		}
	}
	return front, model, compute, own
}

// mostOpen bounds the nesting of spans of a backend's work. Deeper activities are events.
const mostOpen = 64

func attributesOf(r *trace.Record) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("triton.model_name", r.Model),
		attribute.Int64("triton.model_version", r.Version),
		attribute.Int64("triton.trace_id", int64(r.ID)),
		attribute.Int64("triton.trace_parent_id", int64(r.ParentID)),
	}
	if r.RequestID != "" {
		// Spans wait for the collector after the tree has released its memory.
		list = append(list, attribute.String("triton.request_id", infer.Cut(r.RequestID, infer.MaxEcho)))
	}
	return list
}

// spans makes the spans of one tree.
type spans struct {
	*collector
	trace  oteltrace.TraceID
	offset int64 // from the clock of entries to the wall clock, ns
}

// span makes a span from its first entry to its last, and returns the context of spans below it.
func (s *spans) span(ctx context.Context, name string, id trace.SpanID, entries []trace.Entry, attributes ...attribute.KeyValue) context.Context {
	wall := func(e trace.Entry) time.Time { return time.Unix(0, e.At+s.offset) }
	ctx = context.WithValue(ctx, idsKey{}, ids{trace: s.trace, span: oteltrace.SpanID(id)})
	options := []oteltrace.SpanStartOption{oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(attributes...)}
	first, last := time.Now(), time.Time{}
	for i, e := range entries {
		if at := wall(e); i == 0 || at.Before(first) {
			first = at
		}
		if at := wall(e); at.After(last) {
			last = at
		}
	}
	if last.IsZero() {
		last = first
	}
	ctx, span := s.tracer.Start(ctx, name, append(options, oteltrace.WithTimestamp(first))...)
	for _, e := range entries {
		if e.Name != "" {
			span.AddEvent(string(e.Name), oteltrace.WithTimestamp(wall(e)))
		}
	}
	span.End(oteltrace.WithTimestamp(last))
	return ctx
}
