package waitgraph

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// MaxDepth is the depth up to which models may call models: a BLS request made while executing a
// request of this Depth is rejected.
const MaxDepth = 64

// CheckDepth rejects the BLS request of a model that calls itself without end, perhaps through
// others.
func CheckDepth(req *infer.Request) error {
	if req.Depth() <= MaxDepth {
		return nil
	}
	return infer.Errorf(infer.Internal, "Model '%s' cannot be called: models call each other more than %d deep (%s)",
		req.Model, MaxDepth, Chain(req))
}

// shownEnds is how many names of a long chain are shown at each end.
const shownEnds = 4

// Chain returns the names of the models behind a request, outermost first, ending with its own.
func Chain(req *infer.Request) string {
	names := []string{req.Model}
	for req != nil && req.Caller != nil {
		names = append(names, req.Caller.Model) // bound: MaxDepth
		req = deepest(req.Caller.Requests)
	}
	var b strings.Builder // bound: MaxDepth
	for i := len(names) - 1; i >= 0; i-- {
		if at := len(names) - 1 - i; at == shownEnds && i >= shownEnds {
			b.WriteString("… → ")
			i = shownEnds - 1
		}
		b.WriteString(names[i])
		if i > 0 {
			b.WriteString(" → ")
		}
	}
	return b.String()
}

func deepest(requests []*infer.Request) *infer.Request {
	var found *infer.Request
	for _, r := range requests {
		if found == nil || r.Depth() > found.Depth() {
			found = r
		}
	}
	return found
}
