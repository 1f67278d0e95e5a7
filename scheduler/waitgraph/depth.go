package waitgraph

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// MaxDepth is how deep models may call models: a request that a model makes
// while it executes one of this Depth is refused.
const MaxDepth = 64

// CheckDepth refuses the BLS request of a model that calls itself for ever, perhaps
// through others.
func CheckDepth(req *infer.Request) error {
	if req.Depth() <= MaxDepth {
		return nil
	}
	return infer.Errorf(infer.Internal, "Model '%s' cannot be called: models call each other more than %d deep (%s)",
		req.Model, MaxDepth, Chain(req))
}

// shownEnds is how many names are shown at each end of a long chain.
const shownEnds = 4

// Chain names the models that a request comes from, outermost first, and its own.
func Chain(req *infer.Request) string {
	names := []string{req.Model}
	for req != nil && req.Caller != nil {
		names = append(names, req.Caller.Model)
		req = deepest(req.Caller.Requests)
	}
	var b strings.Builder
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
