package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// ErrRegionsOff refuses clients' shared memory. Triton's own text names a flag,
// which would not help here.
var ErrRegionsOff = &infer.Error{Code: infer.Unsupported,
	Message: "This server does not support the shared memory of clients."}

// NoRegion says that a region of one kind of shared memory, "system" or "cuda",
// is not there.
func NoRegion(kind, region string) error {
	return infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, region)
}

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
