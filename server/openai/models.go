package openai

import (
	"net/http"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
)

type target = models.Target

// ready lists the ready models in the order of the repository, and when each was first seen.
func (h *endpoints) ready() (names []string, since map[string]time.Time, err error) {
	index, err := h.parts.Core.Index(true)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	since = make(map[string]time.Time, len(index)) // bound: the models of the repository
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, entry := range index {
		name := entry.GetName()
		if _, another := since[name]; another { // version of the same model
			continue
		}
		names = append(names, name) // bound: the models of the repository
		since[name] = now           // bound: the models of the repository
		if before, known := h.noticed[name]; known {
			since[name] = before // bound: the models of the repository
		}
	}
	h.noticed = since // which does not change from here on
	return names, since, nil
}

func (w *buffer) model(name string, since time.Time) {
	w.raw(`{"id":`)
	quote(w, name)
	w.raw(`,"created":`)
	w.int(since.Unix())
	w.raw(`,"object":"model","owned_by":"Triton Inference Server"}`)
}

// serveModels serves GET /v1/models.
func (h *endpoints) serveModels(w *http1.Reply, r *http1.Request) error {
	names, since, err := h.ready()
	if err != nil {
		return err
	}
	c := h.charge(r)
	defer c.Settle()
	b := buffer{charge: &c, kind: budget.Replies}
	b.raw(`{"object":"list","data":[`)
	for i, name := range names {
		if i > 0 {
			b.raw(",")
		}
		b.model(name, since[name])
	}
	if b.raw("]}"); b.err != nil {
		return b.err
	}
	w.Send(http.StatusOK, b.b)
	return nil
}

// serveModel serves GET /v1/models/M.
func (h *endpoints) serveModel(w *http1.Reply, name string) error {
	_, since, err := h.ready()
	if err != nil {
		return err
	}
	at, known := since[name]
	if !known {
		return unknownModel(http.StatusNotFound, name)
	}
	var b buffer
	b.model(name, at)
	w.Send(http.StatusOK, b.b)
	return nil
}

// changes returns the error of a request that must not load or unload models. Browsers send such
// requests for pages of other sites without a preflight.
func (h *endpoints) changes(r *http1.Request) error {
	switch {
	case !h.cfg.LoadsOnRequest:
		return errControl
	case rest.CrossSite(r):
		return &refusal{status: http.StatusForbidden, text: "pages of other sites may not change anything here"}
	}
	return nil
}

var errControl = refuse("Model load/unload requires --model-control-mode=explicit")

// serveLoad serves POST /v1/models/M/load. It replies when the model is ready.
func (h *endpoints) serveLoad(w *http1.Reply, r *http1.Request, name string) error {
	if err := h.changes(r); err != nil {
		return err
	}
	if _, err := h.parts.Core.Target(name, infer.LatestVersion); err == nil {
		return refuse("Model '%s' is already loaded", name)
	}
	// A client that disconnects does not stop a load that other clients may wait for.
	if err := h.parts.Core.Load(r.Lifetime(), name, "", nil); err != nil {
		return changeFailed("load", name, err)
	}
	return h.serveModel(w, name)
}

// serveUnload serves POST /v1/models/M/unload. It replies when unloading has begun.
func (h *endpoints) serveUnload(w *http1.Reply, r *http1.Request, name string) error {
	if err := h.changes(r); err != nil {
		return err
	}
	if _, err := h.parts.Core.Target(name, infer.LatestVersion); err != nil {
		return unknownModel(http.StatusBadRequest, name)
	}
	if err := h.parts.Core.Unload(r.Lifetime(), name, false); err != nil {
		return changeFailed("unload", name, err)
	}
	b := appendText([]byte(`{"status":"success","model":`), name)
	w.Send(http.StatusOK, append(b, '}'))
	return nil
}

func changeFailed(change, name string, err error) error {
	why := infer.AsError(err)
	e := &refusal{status: statusOf(why.Code), text: infer.Errorf(why.Code, "Failed to %s model '%s': %v", change, name, why).Message}
	if why.Code == infer.InvalidArg {
		e.status = http.StatusBadRequest
	}
	return e
}
