package openai

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/http1"
)

type target = models.Target

// ready lists the models that are ready, in the order of the repository, and when each was
// first seen to be.
func (h *endpoints) ready() (names []string, since map[string]time.Time, err error) {
	index, err := h.core.Index(true)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	since = make(map[string]time.Time, len(index))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, entry := range index {
		name := entry.GetName()
		if _, another := since[name]; another { // version
			continue
		}
		names = append(names, name)
		since[name] = now
		if before, known := h.noticed[name]; known {
			since[name] = before
		}
	}
	h.noticed = since // which nothing changes from here on
	return names, since, nil
}

func appendModel(b []byte, name string, since time.Time) []byte {
	b = appendText(append(b, `{"id":`...), name)
	b = strconv.AppendInt(append(b, `,"created":`...), since.Unix(), 10)
	return append(b, `,"object":"model","owned_by":"Triton Inference Server"}`...)
}

// serveModels serves GET /v1/models.
func (h *endpoints) serveModels(w *http1.Reply, _ *http1.Request) error {
	names, since, err := h.ready()
	if err != nil {
		return err
	}
	b := []byte(`{"object":"list","data":[`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, name, since[name])
	}
	w.Send(http.StatusOK, append(b, ']', '}'))
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
	w.Send(http.StatusOK, appendModel(nil, name, at))
	return nil
}

var errControl = refuse("Model load/unload requires --model-control-mode=explicit")

// serveLoad serves POST /v1/models/M/load. It replies when the model is ready.
func (h *endpoints) serveLoad(w *http1.Reply, r *http1.Request, name string) error {
	if !h.cfg.LoadsOnRequest {
		return errControl
	}
	if _, err := h.core.Target(name, infer.LatestVersion); err == nil {
		return refuse("Model '%s' is already loaded", name)
	}
	// A client that leaves does not stop a load that other clients may wait for.
	if err := h.core.Load(r.Lifetime(), name, "", nil); err != nil {
		return changeFailed("load", name, err)
	}
	return h.serveModel(w, name)
}

// serveUnload serves POST /v1/models/M/unload. It replies when unloading has begun.
func (h *endpoints) serveUnload(w *http1.Reply, r *http1.Request, name string) error {
	if !h.cfg.LoadsOnRequest {
		return errControl
	}
	if _, err := h.core.Target(name, infer.LatestVersion); err != nil {
		return unknownModel(http.StatusBadRequest, name)
	}
	if err := h.core.Unload(r.Lifetime(), name, false); err != nil {
		return changeFailed("unload", name, err)
	}
	b := appendText([]byte(`{"status":"success","model":`), name)
	w.Send(http.StatusOK, append(b, '}'))
	return nil
}

func changeFailed(change, name string, err error) error {
	e := &refusal{status: http.StatusInternalServerError, text: "Failed to " + change + " model '" + name + "': " + infer.AsError(err).Message}
	var known *infer.Error
	if errors.As(err, &known) && known.Code == infer.InvalidArg {
		e.status = http.StatusBadRequest
	}
	return e
}
