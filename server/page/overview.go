package page

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/status"
)

// mostRows bounds the versions on the overview.
const mostRows = 1000

// overview is the page of the server.
type overview struct {
	frame
	States   []state // number of versions in each state
	Rows     []row
	Left     int  // versions that are not listed
	Closed   bool // the list is restricted
	Controls bool
	Problem  string
	Facts    *facts // nil if the statistics are closed
	Errors   []line
}

// facts describe the server's process.
type facts struct {
	Uptime, Memory, Limit, Resident, CPU, Control string
	PID                                           int
	Holder                                        *status.Holder // with the most memory; nil: nothing holds much
}

// state is a state in one word, with a class for its colour.
type state struct{ Class, Word string }

// The classes of states.
const (
	good = "good"
	wait = "wait"
	bad  = "bad"
	off  = "off"
)

// row is a version of a model, or a model without one.
type row struct {
	Model, Version string
	Path           string
	State          state
	Reason         string // why it is not ready, first line
	Backend        string
	Figures        *figures
	Loadable       bool
	LoadPath       string
}

func (p *Pages) serveOverview(w *http1.Reply, r *http1.Request) {
	page := overview{frame: p.frame("Models", "/"), Controls: p.controls(), Closed: !p.open(server.GroupModelRepository)}
	now := p.snapshot(r.Context(), fewErrors)
	if one := now.server; one != nil {
		page.Facts = &facts{
			ageText(seconds(one.Uptime)), bytesText(one.MemoryUsed), bytesText(one.MemoryLimit), bytesText(one.Resident), secondsText(one.CPU),
			one.Control, one.PID, nil,
		}
		if len(one.Holders) > 0 {
			page.Facts.Holder = &one.Holders[0]
		}
	}
	page.Errors = now.errors
	if !page.Closed {
		index, err := p.index(&now)
		if err != nil {
			page.Problem = infer.AsError(err).Message
		}
		page.States = p.summary(index)
		if over := len(index) - mostRows; over > 0 {
			index, page.Left = index[:mostRows], over
		}
		for _, entry := range index {
			page.Rows = append(page.Rows, p.row(entry, &now)) // bound: mostRows
		}
	}
	p.show(w, http.StatusOK, "overview", page)
}

// index returns the repository's index, with the reasons of models without versions, and with
// models that are missing from it. Entries of models that were loaded since the snapshot stay as
// they are.
func (p *Pages) index(now *snapshot) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	index, err := p.core.Index(false)
	if len(now.unread) == 0 {
		return index, err
	}
	index = slices.Clone(index)            // bound: the models of the repository; it may be shared
	at := make(map[string]int, len(index)) // bound: the models of the repository
	for i, entry := range index {
		at[entry.GetName()] = i // bound: the models of the repository
	}
	for _, v := range now.unread {
		i, listed := at[v.Model]
		entry := &kserve.RepositoryIndexResponse_ModelIndex{Name: v.Model, State: v.State, Reason: v.Reason}
		switch {
		case !listed:
			index = append(index, entry) // bound: the models of the repository
		case index[i].GetState() == "":
			index[i] = entry
		}
	}
	slices.SortStableFunc(index, func(a, b *kserve.RepositoryIndexResponse_ModelIndex) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	return index, err
}

// summary counts the versions in each state. Unlike readiness it does not ask models for their
// health: a model that hangs would block the page.
func (p *Pages) summary(index []*kserve.RepositoryIndexResponse_ModelIndex) (list []state) {
	if _, err := p.core.Live(); err != nil {
		list = append(list, state{bad, "the server is exiting"})
	}
	counts := make(map[state]int)
	for _, entry := range index {
		counts[stateOf(entry)]++ // bound: the words for states
	}
	byColour := func(a, b state) int { return cmp.Or(order[a.Class]-order[b.Class], strings.Compare(a.Word, b.Word)) }
	for _, s := range slices.SortedFunc(maps.Keys(counts), byColour) {
		list = append(list, state{s.Class, strconv.Itoa(counts[s]) + " " + s.Word}) // bound: the words for states
	}
	return list
}

// order is the order of the classes in the summary.
var order = map[string]int{good: 0, wait: 1, bad: 2, off: 3}

// row returns an entry of the index for the page.
func (p *Pages) row(entry *kserve.RepositoryIndexResponse_ModelIndex, now *snapshot) row {
	one := row{Model: entry.GetName(), Version: entry.GetVersion(), State: stateOf(entry), Path: modelPath(entry.GetName(), infer.LatestVersion)}
	number, err := strconv.ParseInt(entry.GetVersion(), 10, 64)
	if err == nil && number > 0 {
		one.Path = modelPath(entry.GetName(), number)
	}
	if reason := entry.GetReason(); one.State != unloaded {
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
	one.Figures = now.of(entry.GetName(), entry.GetVersion())
	return one
}

// States of versions, as in the index.
const (
	stateReady     = "READY"
	stateLoading   = "LOADING"
	stateUnloading = "UNLOADING"
)

var (
	ready    = state{good, "ready"}
	unloaded = state{off, "unloaded"}
)

func stateOf(entry *kserve.RepositoryIndexResponse_ModelIndex) state {
	switch word := entry.GetState(); {
	case word == stateReady:
		return ready
	case word == stateLoading:
		return state{wait, "loading"}
	case word == stateUnloading:
		return state{wait, "unloading"}
	case word == "":
		return state{off, "not loaded"}
	case entry.GetReason() == unloaded.Word:
		return unloaded
	default:
		return state{bad, strings.ToLower(word)} // bound: the words for states
	}
}
