package platforms

import (
	"net/http"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
)

// refuse replies without a body: the platforms look only at the status.
func refuse(w *http1.Reply, status int) { w.Send(status, nil) }

// sendJSON replies like rest.SendJSON, or with its error.
func sendJSON(w *http1.Reply, n int, appendBody func(b []byte) []byte) {
	if err := rest.SendJSON(w, n, appendBody); err != nil {
		rest.WriteError(w, err)
	}
}

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

// shortages are parts of the texts of models and libraries that report a lack of memory. The
// platform then unloads other models and retries.
var shortages = [...]string{
	"CUDA out of memory", "CUDA_OUT_OF_MEMORY", "Out of memory", "Out Of Memory", "out of memory", "MemoryError", "OutOfMemory", "OOM",
	"Dst tensor is not initialized", "Src tensor is not initialized", "CNMEM_STATUS_OUT_OF_MEMORY", "CUDNN_STATUS_NOT_INITIALIZED",
	"CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "Failed to allocate memory", "failed to allocate memory",
	"No space left on device",
}

// statusOf returns the status of an error of a load or an invocation: 507 for lack of memory, by
// the text, and 400 for all others.
func statusOf(err error) int {
	text := infer.AsError(err).Message
	for _, shortage := range shortages {
		if strings.Contains(text, shortage) {
			return http.StatusInsufficientStorage
		}
	}
	return http.StatusBadRequest
}
