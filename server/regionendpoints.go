package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/server/http1"
)

// serveRegionStatus serves GET …/status of one kind of shared memory, "system"
// or "cuda". There is none, so all that can be asked for is unknown.
func serveRegionStatus(w *http1.Reply, kind, region string) error {
	if region != "" {
		return NoRegion(kind, region)
	}
	w.Send(http.StatusOK, []byte("[]"))
	return nil
}

// serveRegionUnregister serves POST …/unregister, which succeeds for regions that
// are not there: clients begin with it.
func serveRegionUnregister(w *http1.Reply) error {
	w.Send(http.StatusOK, nil)
	return nil
}
