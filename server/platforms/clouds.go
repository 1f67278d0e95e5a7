package platforms

import (
	"net/http"

	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
)

// refuse replies without a body: the platforms look only at the status.
func refuse(w *http1.Reply, status int) { w.Send(status, nil) }

// serveHealth replies with a status and no body.
func serveHealth(w *http1.Reply, r *http1.Request, check func() (bool, error)) {
	if r.Method != http.MethodGet {
		rest.RefuseMethod(w)
		return
	}
	status := http.StatusBadRequest
	if good, err := check(); good && err == nil {
		status = http.StatusOK
	}
	w.Send(status, nil)
}
