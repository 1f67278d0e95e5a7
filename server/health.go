package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
)

// serveLive serves GET /v2/health/live.
func (h *HTTP) serveLive(w *reply) error {
	live, err := h.core.Live()
	return writeHealth(w, live, err)
}

// serveReady serves GET /v2/health/ready.
func (h *HTTP) serveReady(w *reply, r *request) error {
	ready, err := h.core.Ready(r.context())
	return writeHealth(w, ready, err)
}

// writeHealth replies with an empty body whose status tells all.
func writeHealth(w *reply, good bool, err error) error {
	switch {
	case err != nil:
		return err
	case good:
		w.send(http.StatusOK, nil)
	default:
		w.send(http.StatusBadRequest, nil)
	}
	return nil
}

// serveModelReady serves GET …/ready.
func (h *HTTP) serveModelReady(w *reply, r *request, model string, version int64) error {
	ready, err := h.core.ModelReady(r.context(), model, version)
	if err != nil {
		return err
	}
	if !ready {
		return infer.Errorf(infer.InvalidArg, "Model version not ready")
	}
	w.send(http.StatusOK, nil)
	return nil
}
