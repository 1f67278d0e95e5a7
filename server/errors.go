package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// What other servers of the protocol have and this one has not.
var (
	// ErrTracesOff refuses the settings of traces.
	ErrTracesOff   = &infer.Error{Code: infer.Unsupported, Message: "This server does not support traces."}
	errGenerateOff = &infer.Error{Code: infer.Unsupported, Message: "This server does not support the generate endpoints."}
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

// writeStatus replies with an error and the type that has been set.
func writeStatus(w *reply, status int, message string) {
	body := make([]byte, 0, len(message)+16)
	body = append(body, `{"error":`...)
	w.send(status, append(jsontext.AppendString(body, message), '}'))
}

// writeError replies with err, in the type that has been set.
func writeError(w *reply, err error) {
	e := infer.AsError(err)
	writeStatus(w, httpStatus(e.Code), e.Message)
}
