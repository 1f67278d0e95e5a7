package openai

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// refusal is an error as a client sees it: in "detail", where Triton's front end has it,
// and in "error", where clients of OpenAI look.
type refusal struct {
	status     int
	text, code string // code is "" for null
}

func (e *refusal) Error() string { return e.text }

// refuse returns a refusal of what the client has asked for.
func refuse(format string, args ...any) error {
	return &refusal{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

func unknownModel(status int, name string) error {
	return &refusal{status: status, text: "Unknown model: " + name, code: "model_not_found"}
}

// failure returns a refusal for what the server or a model has to answer for.
func failure(err error) error {
	return &refusal{status: http.StatusInternalServerError, text: infer.AsError(err).Message}
}

// invalid is a body with faults.
type invalid struct{ faults []fault }

func (e *invalid) Error() string { return e.faults[0].message }

// writeError replies with err.
func writeError(w *http1.Reply, err error) {
	w.ContentType = typeJSON
	var wrong *invalid
	if errors.As(err, &wrong) {
		w.Send(http.StatusUnprocessableEntity, wrong.append(nil))
		return
	}
	e := asRefusal(err)
	b := appendText([]byte(`{"detail":`), e.text)
	b = appendErrorObject(append(b, `,"error":`...), e.text, kindOf(e.status), "", e.code)
	w.Send(e.status, append(b, '}'))
}

func asRefusal(err error) *refusal {
	var e *refusal
	if !errors.As(err, &e) {
		errors.As(failure(err), &e)
	}
	return e
}

// kindOf returns what OpenAI calls the type of an error.
func kindOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// appendErrorObject appends an error in OpenAI's form; an empty param or code is null.
func appendErrorObject(b []byte, text, kind, param, code string) []byte {
	b = appendText(append(b, `{"message":`...), text)
	b = appendText(append(b, `,"type":`...), kind)
	b = appendOptional(append(b, `,"param":`...), param)
	b = appendOptional(append(b, `,"code":`...), code)
	return append(b, '}')
}

// writeFramed replies with an error that has no "detail" in Triton's front end either.
func writeFramed(w *http1.Reply, status int, text, code string) {
	w.ContentType = typeJSON
	b := appendText([]byte(`{"error":{"message":`), text)
	b = appendText(append(b, `,"type":`...), kindOf(status))
	b = appendText(append(b, `,"code":`...), code)
	w.Send(status, append(b, '}', '}'))
}

// append appends the reply to a body with faults.
func (e *invalid) append(b []byte) []byte {
	b = append(b, `{"detail":[`...)
	for i, f := range e.faults {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"type":`...), f.kind)
		b = append(b, `,"loc":["body"`...)
		for _, part := range f.path {
			b = append(b, ',')
			if _, err := strconv.ParseUint(part, 10, 31); err == nil {
				b = append(b, part...)
				continue
			}
			b = appendText(b, part)
		}
		b = appendText(append(b, `],"msg":`...), f.message)
		b = append(append(b, `,"input":`...), f.input...)
		if f.context != nil {
			b = append(append(b, `,"ctx":`...), f.context...)
		}
		b = append(b, '}')
	}
	first := e.faults[0]
	param := strings.Join(first.path, ".")
	text := first.message
	if param != "" {
		text = param + ": " + text
	}
	b = appendErrorObject(append(b, `],"error":`...), text, kindOf(http.StatusUnprocessableEntity), param, first.kind)
	return append(b, '}')
}

// appendText appends a JSON string; bytes that are no UTF-8 are replaced, since clients decode
// bodies strictly.
func appendText(b []byte, s string) []byte {
	return jsontext.AppendString(b, strings.ToValidUTF8(s, "\ufffd"))
}

func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendText(b, s)
}
