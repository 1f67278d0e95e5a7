package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
)

// errRegionsOff refuses clients' shared memory, which is never on.
var errRegionsOff = &infer.Error{Code: infer.Unsupported,
	Message: "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."}

// serveRegionStatus serves GET …/status of one kind of shared memory, "system"
// or "cuda". There is none, so all that can be asked for is unknown.
func serveRegionStatus(w *reply, kind, region string) error {
	if region != "" {
		return infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, region)
	}
	w.send(http.StatusOK, []byte("[]"))
	return nil
}
