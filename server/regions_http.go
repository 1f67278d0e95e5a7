package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
)

// errRegionsOff refuses clients' shared memory. Triton's own text names a flag,
// which would not help here.
var errRegionsOff = &infer.Error{Code: infer.Unsupported,
	Message: "This server does not support the shared memory of clients."}

// serveRegionStatus serves GET …/status of one kind of shared memory, "system"
// or "cuda". There is none, so all that can be asked for is unknown.
func serveRegionStatus(w *reply, kind, region string) error {
	if region != "" {
		return infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, region)
	}
	w.send(http.StatusOK, []byte("[]"))
	return nil
}
