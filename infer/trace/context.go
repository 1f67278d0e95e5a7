package trace

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
)

// TraceID identifies a trace in a W3C context, SpanID a part of it.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

func (id TraceID) IsZero() bool { return id == TraceID{} }

// NewTraceID returns a random TraceID.
func NewTraceID() (id TraceID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// NewSpanID makes a number that no other span has.
func NewSpanID() (id SpanID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// context returns the W3C context in which t's model is, as JSON, or "".
func (t *Trace) context() string {
	c := &t.tree.config
	if c.TraceID.IsZero() {
		return ""
	}
	b := append(make([]byte, 0, 96), `{"traceparent":"00-`...)
	b = append(hex.AppendEncode(b, c.TraceID[:]), '-')
	b = append(hex.AppendEncode(b, t.Span[:]), "-01\""...)
	if c.State != "" {
		state, _ := json.Marshal(c.State)                    // a string is never refused; bound: a header of the client
		b = append(append(b, `,"tracestate":`...), state...) // bound: as state
	}
	return string(append(b, '}')) // bound: as state
}
