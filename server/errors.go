package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
)

// httpStatus maps a code to the status of a reply.
func httpStatus(c infer.Code) int {
	switch c {
	case infer.Internal:
		return http.StatusInternalServerError
	case infer.NotFound:
		return http.StatusNotFound
	case infer.Unavailable:
		return http.StatusServiceUnavailable
	case infer.Unsupported:
		return http.StatusNotImplemented
	default: // Unknown, InvalidArg, AlreadyExists, Cancelled
		return http.StatusBadRequest
	}
}

// Values of the Content-Type header, shared so that setting one allocates nothing.
var (
	typePlain  = []string{"text/plain"}
	typeJSON   = []string{"application/json"}
	typeBinary = []string{"application/octet-stream"}
)

// begin sets what every reply has: a type, and no Date.
func begin(w http.ResponseWriter, contentType []string) {
	h := w.Header()
	h["Date"] = nil
	h["Content-Type"] = contentType
}

// writeStatus replies with an error and the type that has been set.
func writeStatus(w http.ResponseWriter, status int, message string) {
	body := make([]byte, 0, len(message)+16)
	body = append(body, `{"error":`...)
	body = append(appendJSONString(body, message), '}')
	writeBody(w, status, body)
}

// writeError replies with err, in the type that has been set.
func writeError(w http.ResponseWriter, err error) {
	e := infer.AsError(err)
	writeStatus(w, httpStatus(e.Code), e.Message)
}
