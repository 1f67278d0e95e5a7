package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// serveLive serves GET /v2/health/live.
func (h *HTTP) serveLive(w *http1.Reply) error {
	live, err := h.core.Live()
	return writeHealth(w, live, err)
}

// serveReady serves GET /v2/health/ready.
func (h *HTTP) serveReady(w *http1.Reply, r *http1.Request) error {
	ready, err := h.core.Ready(r.Context())
	return writeHealth(w, ready, err)
}

// writeHealth replies with an empty body whose status tells all.
func writeHealth(w *http1.Reply, good bool, err error) error {
	switch {
	case err != nil:
		return err
	case good:
		w.Send(http.StatusOK, nil)
	default:
		w.Send(http.StatusBadRequest, nil)
	}
	return nil
}

// serveModelReady serves GET …/ready.
func (h *HTTP) serveModelReady(w *http1.Reply, r *http1.Request, model string, version int64) error {
	ready, err := h.core.ModelReady(r.Context(), model, version)
	if err != nil {
		return err
	}
	if !ready {
		return infer.Errorf(infer.InvalidArg, "Model version not ready")
	}
	w.Send(http.StatusOK, nil)
	return nil
}
