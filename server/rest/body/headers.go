package body

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
)

// ForwardHeaders appends to params the headers of r that f chooses, in the client's spelling and
// order. f may be nil.
func ForwardHeaders(params []infer.Parameter, r *http1.Request, f *server.Forwarding) (_ []infer.Parameter, err error) {
	if f == nil {
		return params, nil
	}
	for _, field := range r.Fields {
		if params, err = f.AppendHeader(params, field.Name, field.Value+field.Trailing); err != nil {
			return params, err
		}
	}
	return params, nil
}
