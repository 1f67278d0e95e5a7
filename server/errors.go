package server

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// errUnsupportedEncoding goes with a header Accept-Encoding.
var errUnsupportedEncoding = &infer.Error{Code: infer.Unsupported, Message: "Unsupported compression type"}

// errGenerateOff refuses what other servers of the protocol have and this one has not.
var errGenerateOff = &infer.Error{Code: infer.Unsupported, Message: "This server does not support the generate endpoints."}

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
func writeStatus(w *http1.Reply, status int, message string) {
	w.Send(status, errorJSON(message))
}

// errorJSON is the body of a reply with an error.
func errorJSON(message string) []byte {
	body := make([]byte, 0, len(message)+16)
	body = append(body, `{"error":`...)
	return append(jsontext.AppendString(body, message), '}')
}

// writeError replies with err, in the type that has been set.
func writeError(w *http1.Reply, err error) {
	e := infer.AsError(err)
	writeStatus(w, httpStatus(e.Code), e.Message)
}
