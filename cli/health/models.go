package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Limits: bytes of a repository index, models to check, models to name, and bytes of a reason to
// show.
const (
	maxIndex  = 4 << 20
	maxAsked  = 100
	maxNamed  = 10
	maxReason = 200
)

// notReady lists the versions that keep a server from being ready, with state and reason, if the
// server tells.
func (s *server) notReady(ctx context.Context) (list []string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v2/repository/index", strings.NewReader("{}"))
	if err != nil {
		return nil
	}
	reply, err := s.client.Do(r)
	if err != nil {
		return nil
	}
	defer reply.Body.Close()
	var index []struct{ Name, Version, State, Reason string }
	if json.NewDecoder(io.LimitReader(reply.Body, maxIndex)).Decode(&index) != nil {
		return nil
	}
	asked, more := 0, 0
	for _, m := range index {
		state := m.State
		switch {
		case state == "" || m.Reason == "unloaded": // it should not be loaded
			continue
		case state == "READY" && asked == maxAsked:
			continue
		case state == "READY": // its instances may not be ready
			asked++
			if s.isReady(ctx, m.Name, m.Version) {
				continue
			}
			state = "its instances are not"
		}
		if len(list) == maxNamed {
			more++
			continue
		}
		if reason, _, _ := strings.Cut(m.Reason, "\n"); reason != "" {
			state += ": " + reason[:min(len(reason), maxReason)]
		}
		list = append(list, strings.TrimSpace(m.Name+" "+m.Version)+" ("+strings.ToValidUTF8(state, "")+")")
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return list
}

// isReady reports whether a version is ready. A version that does not respond counts as ready, so
// that it is not named.
func (s *server) isReady(ctx context.Context, model, version string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v2/models/"+url.PathEscape(model)+"/versions/"+url.PathEscape(version)+"/ready", nil)
	if err != nil {
		return true
	}
	reply, err := s.client.Do(r)
	if err != nil {
		return true
	}
	defer reply.Body.Close()
	return reply.StatusCode == http.StatusOK
}
