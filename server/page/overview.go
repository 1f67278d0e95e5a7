package page

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
)

// mostRows bounds the versions that the overview lists.
const mostRows = 1000

// overview is the page of the server.
type overview struct {
	frame
	State    state
	Rows     []row
	Left     int  // versions that are not listed
	Closed   bool // the list is restricted
	Controls bool
	Problem  string
}

// state is a state in one word, with a class for its colour.
type state struct{ Class, Word string }

// row is a version of a model, or a model without one.
type row struct {
	Model, Version string
	Path           string
	State          state
	Reason         string // why it is not ready, the first line
	Backend        string
	Traffic        *traffic
	Loadable       bool
	LoadPath       string
}

// traffic are the counts of a version since it was loaded.
type traffic struct {
	Succeeded, Failed, Executions int64
}

func (p *Pages) serveOverview(w *http1.Reply, r *http1.Request) {
	page := overview{frame: p.frame("Models", "/"), State: p.readiness(r.Context()), Controls: p.controls(), Closed: !p.open(server.GroupModelRepository)}
	if !page.Closed {
		index, err := p.core.Index(false)
		if err != nil {
			page.Problem = infer.AsError(err).Message
		}
		if over := len(index) - mostRows; over > 0 {
			index, page.Left = index[:mostRows], over
		}
		figures := p.traffics("")
		for _, entry := range index {
			page.Rows = append(page.Rows, p.row(entry, figures))
		}
	}
	p.show(w, http.StatusOK, "overview", page)
}

// readiness is the server's state.
func (p *Pages) readiness(ctx context.Context) state {
	ready, err := p.core.Ready(ctx)
	switch {
	case err != nil:
		return state{"bad", "exiting"}
	case ready:
		return state{"good", "ready"}
	}
	return state{"wait", "not ready"}
}

// row shows an entry of the index.
func (p *Pages) row(entry *kserve.RepositoryIndexResponse_ModelIndex, figures map[string]*traffic) row {
	one := row{Model: entry.GetName(), Version: entry.GetVersion(), State: stateOf(entry.GetState()), Path: modelPath(entry.GetName(), infer.LatestVersion)}
	number, err := strconv.ParseInt(entry.GetVersion(), 10, 64)
	if err == nil && number > 0 {
		one.Path = modelPath(entry.GetName(), number)
	}
	if reason := entry.GetReason(); reason != "" {
		one.Reason, _, _ = strings.Cut(reason, "\n")
	}
	one.Loadable, one.LoadPath = entry.GetState() != stateReady && entry.GetState() != stateLoading, modelPath(entry.GetName(), infer.LatestVersion)+"/load"
	if entry.GetState() == stateReady && p.open(server.GroupMetadata) {
		if info, err := p.core.Model(entry.GetName(), number); err == nil {
			one.Backend = info.Config.GetBackend()
			if one.Backend == "" {
				one.Backend = info.Platform()
			}
		}
	}
	one.Traffic = figures[entry.GetName()+"/"+entry.GetVersion()]
	return one
}

// States of versions, as the index has them.
const (
	stateReady     = "READY"
	stateLoading   = "LOADING"
	stateUnloading = "UNLOADING"
)

func stateOf(word string) state {
	switch word {
	case stateReady:
		return state{"good", "ready"}
	case stateLoading:
		return state{"wait", "loading"}
	case stateUnloading:
		return state{"wait", "unloading"}
	case "":
		return state{"off", "not loaded"}
	}
	return state{"bad", strings.ToLower(word)}
}

// traffics are the counts of the versions that are ready, of all models if name is "".
func (p *Pages) traffics(name string) map[string]*traffic {
	if !p.open(server.GroupStatistics) {
		return nil
	}
	list, err := p.core.Statistics(name, infer.LatestVersion)
	if err != nil {
		return nil
	}
	byVersion := make(map[string]*traffic, len(list))
	for _, s := range list {
		byVersion[s.GetName()+"/"+s.GetVersion()] = &traffic{
			Succeeded: int64(s.GetInferenceStats().GetSuccess().GetCount()), Failed: int64(s.GetInferenceStats().GetFail().GetCount()),
			Executions: int64(s.GetExecutionCount()),
		}
	}
	return byVersion
}
