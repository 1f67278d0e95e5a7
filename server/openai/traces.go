package openai

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/server/http1"
)

// trace records a request if it is traced. Its body, which names the model, was read since a moment
// of h.parts.Traces. The caller calls Finish.
func (h *endpoints) trace(req *infer.Request, r *http1.Request, since int64) *trace.Trace {
	if !h.parts.Traces.On() {
		return nil
	}
	req.Trace = h.parts.Traces.Sample(req.Model, false, r.Header)
	req.Trace.StampAt(trace.HTTPReceiveStart, since)
	req.Trace.Stamp(trace.HTTPReceiveEnd)
	return req.Trace
}
