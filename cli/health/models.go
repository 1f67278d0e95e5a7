package health

import (
	"context"
	"fmt"
	"strings"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// Limits: models to check, models to name, and bytes of a reason to show.
const (
	maxAsked  = 100
	maxNamed  = 10
	maxReason = 200
)

// listed returns names after a heading, or "" without names.
func listed(heading string, names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	if len(names) == 0 {
		return ""
	}
	return "; " + heading + ": " + strings.Join(names, ", ")
}

// unready names the versions that keep a server from being ready, with state and reason, and the
// models that are not loaded, if the server tells. A model with an invalid configuration is among
// the latter.
func unready(ctx context.Context, e *client.Endpoint) string {
	server := grpcservice.NewGRPCInferenceServiceClient(e)
	index, err := server.RepositoryIndex(ctx, &kserve.RepositoryIndexRequest{})
	if err != nil {
		return ""
	}
	var waiting, idle []string
	asked := 0
	for _, m := range index.GetModels() {
		state := m.GetState()
		switch {
		case m.GetReason() == "unloaded": // it should not be loaded
			continue
		case state == "":
			idle = append(idle, m.GetName())
			continue
		case state == "READY" && asked == maxAsked:
			continue
		case state == "READY": // its instances may not be ready
			asked++
			_, err := server.ModelReady(ctx, &kserve.ModelReadyRequest{Name: m.GetName(), Version: m.GetVersion()})
			if !client.IsRefusal(err) { // also if it does not respond
				continue
			}
			state = "its instances are not"
		}
		if reason, _, _ := strings.Cut(m.GetReason(), "\n"); reason != "" {
			state += ": " + infer.Cut(reason, maxReason)
		}
		waiting = append(waiting, strings.TrimSpace(m.GetName()+" "+m.GetVersion())+" ("+state+")")
	}
	return listed("not ready", waiting) + listed("not loaded", idle)
}
