package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
)

// serveLive serves GET /v2/health/live.
func (h *HTTP) serveLive(w http.ResponseWriter) error {
	live, err := h.core.Live()
	return writeHealth(w, live, err)
}

// serveReady serves GET /v2/health/ready.
func (h *HTTP) serveReady(w http.ResponseWriter, r *http.Request) error {
	ready, err := h.core.Ready(r.Context())
	return writeHealth(w, ready, err)
}

// writeHealth replies with an empty body whose status tells all.
func writeHealth(w http.ResponseWriter, good bool, err error) error {
	switch {
	case err != nil:
		return err
	case good:
		writeBody(w, http.StatusOK, nil)
	default:
		writeBody(w, http.StatusBadRequest, nil)
	}
	return nil
}

// serveModelReady serves GET …/ready.
func (h *HTTP) serveModelReady(w http.ResponseWriter, r *http.Request, model string, version int64) error {
	ready, err := h.core.ModelReady(r.Context(), model, version)
	if err != nil {
		return err
	}
	if !ready {
		return infer.Errorf(infer.InvalidArg, "Model version not ready")
	}
	writeBody(w, http.StatusOK, nil)
	return nil
}
