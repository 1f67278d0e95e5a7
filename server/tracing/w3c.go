package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/nereid-serving/nereid/infer/trace"
)

// carrier adapts a client's headers to the library.
type carrier func(name string) (string, bool)

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string {
	value, _ := c(name)
	return value
}

// Set implements propagation.TextMapCarrier. A client's headers are not written.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

// readContext reads the W3C context of a client's headers, and reports whether it is valid.
func readContext(c *trace.Config, header func(string) (string, bool)) bool {
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier(header))
	span := oteltrace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return false
	}
	c.TraceID, c.Parent, c.State = trace.TraceID(span.TraceID()), trace.SpanID(span.SpanID()), span.TraceState().String()
	return true
}
