package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/kserve"
)

// mostNamed is how many models an error lists.
const mostNamed = 10

// unserved adds alternatives from the server's index to an error about a model, if there are any.
func (p *prepared) unserved(ctx context.Context, err error) error {
	index, noIndex := p.server.RepositoryIndex(ctx, &kserve.RepositoryIndexRequest{})
	if noIndex != nil {
		return err
	}
	if text := instead(p.options.model, index.GetModels()); text != "" {
		return fmt.Errorf("%w; %s", err, text)
	}
	return err
}

// instead suggests a similar model or version from an index, or returns "".
//
// bound: the index, of at most client.MaxReply bytes
func instead(model string, index []*kserve.RepositoryIndexResponse_ModelIndex) string {
	var ready, names []string
	for _, entry := range index {
		if entry.GetState() == "READY" {
			names = append(names, entry.GetName())
		}
		if entry.GetName() == model && entry.GetState() == "READY" {
			ready = append(ready, entry.GetVersion())
		}
	}
	if len(ready) > 0 {
		return "ready versions: " + strings.Join(ready, ", ")
	}
	for _, entry := range index {
		switch reason, _, _ := strings.Cut(strings.TrimSpace(entry.GetReason()), "\n"); {
		case entry.GetName() != model:
		case entry.GetState() == "" || entry.GetState() == "UNKNOWN":
			return "it is in the repository, but not loaded"
		case reason != "":
			return "it is " + entry.GetState() + ": " + reason
		default:
			return "it is " + entry.GetState()
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "no model of the server is ready"
	}
	text := "ready models: " + strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if near := spelling.Nearest(model, names); near != "" {
		text = "did you mean " + near + "? " + text
	}
	return text
}
