package server

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// forwardHeaders appends the headers of r that are to be forwarded to params, as
// the client spelled them and in its order.
func forwardHeaders(f *Forwarding, params []infer.Parameter, r *http1.Request) (_ []infer.Parameter, err error) {
	if f == nil {
		return params, nil
	}
	for _, field := range r.Fields {
		if params, err = f.AppendHeader(params, field.Name, field.Value); err != nil {
			return params, err
		}
	}
	return params, nil
}
