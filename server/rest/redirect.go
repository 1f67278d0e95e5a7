package rest

import (
	"net/http"

	"github.com/nereid-serving/nereid/server/http1"
)

// ServeAs serves a request as if it had come to another path, with the method of that endpoint, for
// Vertex AI's redirects. Changes of models or regions are rejected with 403, and other unavailable
// endpoints with 400, both without a body.
func (h *Endpoints) ServeAs(w *http1.Reply, r *http1.Request, path string) {
	t := route(path)
	switch t.endpoint {
	case epServerLive, epServerReady, epServerMetadata, epModelMetadata, epModelReady, epModelConfig, epModelStatistics,
		epInfer, epRepositoryIndex, epRegionStatus:
	case epRepositoryLoad, epRepositoryUnload, epRepositoryInstances, epRegionRegister, epRegionUnregister:
		w.Send(http.StatusForbidden, nil)
		return
	default:
		w.Send(http.StatusBadRequest, nil)
		return
	}
	ep := &endpoints[t.endpoint]
	if !h.Allow(w, r, ep.group) {
		return
	}
	w.ContentType = ep.contentType
	if err := h.serve(t, w, r); err != nil {
		WriteError(w, err)
	}
}
