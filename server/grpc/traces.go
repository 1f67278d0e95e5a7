package grpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/tracing"
)

// sample returns the trace of a request, or nil if it is not traced. waited and received are the
// times when the server began to wait for its message and had received it; 0 is unknown.
func (g *FrontEnd) sample(ctx context.Context, model string, waited, received int64) *trace.Trace {
	if !g.parts.Traces.On() {
		return nil
	}
	t := g.parts.Traces.Sample(model, tracing.FrontEndLast, func(name string) (string, bool) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	})
	t.StampAt(trace.GRPCWaitReadStart, waited)
	t.StampAt(trace.GRPCWaitReadEnd, received)
	return t
}

// openTraces tracks the traces of a stream's requests that are in flight or have unwritten replies.
// All methods accept a nil trace.
type openTraces struct {
	mu     sync.Mutex
	closed bool
	open   map[*trace.Trace]int // bound: the requests of the stream; unwritten replies, plus one while the request is in flight
}

// add counts a request in flight or an unwritten reply.
func (o *openTraces) add(t *trace.Trace) {
	if t == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		t.Finish()
		return
	}
	if o.open == nil {
		o.open = make(map[*trace.Trace]int)
	}
	o.open[t]++
}

// done undoes one add.
func (o *openTraces) done(t *trace.Trace) {
	if t == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[t]--; o.open[t] <= 0 {
		delete(o.open, t)
		t.Finish()
	}
}

// close finishes all open traces, because the client has disconnected.
func (o *openTraces) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for t := range o.open {
		t.Finish()
	}
	o.open = nil
}

// traceSettings serves TraceSetting.
func (g *FrontEnd) traceSettings(_ context.Context, q *kserve.TraceSettingRequest) (*kserve.TraceSettingResponse, error) {
	model := q.GetModelName()
	if model != "" {
		if _, err := g.parts.Core.Model(model, infer.LatestVersion); err != nil {
			return nil, tracing.ErrModel(model)
		}
	}
	c, err := traceChange(q.GetSettings())
	if err != nil {
		return nil, err
	}
	if err := g.parts.Traces.Change(model, c); err != nil {
		return nil, err
	}
	shown := map[string]*kserve.TraceSettingResponse_SettingValue{}
	for _, s := range g.parts.Traces.Settings(model) {
		if shown[s.Key] == nil {
			shown[s.Key] = &kserve.TraceSettingResponse_SettingValue{} // bound: the settings of traces
		}
		shown[s.Key].Value = append(shown[s.Key].Value, s.Values...) // bound: the settings of traces
	}
	return &kserve.TraceSettingResponse{Settings: shown}, nil
}

// traceChange parses the settings that a client wants to change.
func traceChange(settings map[string]*kserve.TraceSettingRequest_SettingValue) (c tracing.Change, err error) {
	if _, given := settings[tracing.KeyFile]; given {
		return c, tracing.ErrFile
	}
	if v, given := settings[tracing.KeyLevel]; given {
		if len(v.GetValue()) == 0 {
			c.Level.Given, c.Level.Clear = true, true
		} else if err := c.ReadLevels(v.GetValue()); err != nil {
			return c, err
		}
	}
	for _, field := range [...]struct {
		key          string
		given, clear *bool
		read         func(text string) error
	}{
		{tracing.KeyRate, &c.Rate.Given, &c.Rate.Clear, c.ReadRate},
		{tracing.KeyCount, &c.Count.Given, &c.Count.Clear, func(text string) error { return c.ReadCount(text, " ") }},
		{tracing.KeyFrequency, &c.Frequency.Given, &c.Frequency.Clear, c.ReadFrequency},
	} {
		v, given := settings[field.key]
		switch {
		case !given:
		case len(v.GetValue()) == 0:
			*field.given, *field.clear = true, true
		case len(v.GetValue()) > 1:
			return c, infer.Errorf(infer.InvalidArg, "expect only 1 value for '%s'", field.key)
		default:
			if err := field.read(v.GetValue()[0]); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}
