package openai

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// refusal is an error as a client sees it: in "detail", as in Triton's front end, and in "error",
// where clients of OpenAI look.
type refusal struct {
	status     int
	text, code string // code is "" for null
}

func (e *refusal) Error() string { return e.text }

// refuse returns the error of an unsupported request.
func refuse(format string, args ...any) error {
	return &refusal{status: http.StatusBadRequest, text: infer.Errorf(infer.InvalidArg, format, args...).Message}
}

func unknownModel(status int, name string) error {
	return &refusal{status: status, text: infer.Errorf(infer.NotFound, "Unknown model: %s", name).Message, code: "model_not_found"}
}

// failure returns the refusal for an error of the server or of a model.
func failure(err error) error {
	e := infer.AsError(err)
	return &refusal{status: statusOf(e.Code), text: e.Message}
}

// statusOf returns the status of an error of the core or of a model.
func statusOf(code infer.Code) int {
	if code == infer.Unavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// ofRequest returns an error from before the model was asked. A request that needs more memory than
// the server may ever have is the client's error.
func ofRequest(err error) error {
	var e *infer.Error
	if errors.As(err, &e) && e.Code == infer.InvalidArg {
		return &refusal{status: http.StatusBadRequest, text: e.Message}
	}
	return err
}

// invalid is a body with faults.
type invalid struct{ faults []fault }

func (e *invalid) Error() string { return e.faults[0].message }

// writeError replies with err.
func (h *endpoints) writeError(w *http1.Reply, r *http1.Request, err error) {
	w.ContentType = typeJSON
	c := h.charge(r)
	defer c.Settle()
	b := buffer{charge: &c, kind: budget.Replies}
	var wrong *invalid
	if errors.As(err, &wrong) {
		wrong.write(&b)
		if b.err == nil {
			w.Send(http.StatusUnprocessableEntity, b.b)
			return
		}
		err = b.err
	}
	e := asRefusal(err)
	if b.detail(e); b.err != nil { // no memory for the long text of a model
		b = buffer{}
		b.detail(&refusal{status: e.status, text: infer.Cut(e.text, infer.MaxEcho), code: e.code})
	}
	w.Send(e.status, b.b)
}

// detail writes an error in both forms.
func (w *buffer) detail(e *refusal) {
	w.raw(`{"detail":`)
	quote(w, e.text)
	w.raw(`,"error":`)
	w.errorObject(e.text, kindOf(e.status), "", e.code)
	w.raw("}")
}

func asRefusal(err error) *refusal {
	var e *refusal
	if !errors.As(err, &e) {
		errors.As(failure(err), &e)
	}
	return e
}

// kindOf returns OpenAI's type of an error.
func kindOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// errorObject writes an error in OpenAI's form; an empty param or code is null.
func (w *buffer) errorObject(text, kind, param, code string) {
	w.raw(`{"message":`)
	quote(w, text)
	w.raw(`,"type":`)
	quote(w, kind)
	w.raw(`,"param":`)
	w.optional(param)
	w.raw(`,"code":`)
	w.optional(code)
	w.raw("}")
}

// writeFramed replies with a short error, which has no "detail" in Triton's front end either.
func writeFramed(w *http1.Reply, status int, text, code string) {
	w.ContentType = typeJSON
	var b buffer
	b.raw(`{"error":{"message":`)
	quote(&b, text)
	b.raw(`,"type":`)
	quote(&b, kindOf(status))
	b.raw(`,"code":`)
	quote(&b, code)
	b.raw("}}")
	w.Send(status, b.b)
}

// write writes the reply to a body with faults.
func (e *invalid) write(b *buffer) {
	b.raw(`{"detail":[`)
	for i, f := range e.faults {
		if i > 0 {
			b.raw(",")
		}
		b.raw(`{"type":`)
		quote(b, f.kind)
		b.raw(`,"loc":["body"`)
		for _, part := range f.path {
			b.raw(",")
			if _, err := strconv.ParseUint(part, 10, 31); err == nil {
				b.raw(part)
				continue
			}
			quote(b, part)
		}
		b.raw(`],"msg":`)
		quote(b, f.message)
		b.raw(`,"input":`)
		b.bytes(f.input)
		if f.context != nil {
			b.raw(`,"ctx":`)
			b.bytes(f.context)
		}
		b.raw("}")
	}
	first := e.faults[0]
	param := strings.Join(first.path, ".") // bound: names of fields
	text := first.message
	if param != "" {
		text = param + ": " + text // bound: names of fields
	}
	b.raw(`],"error":`)
	b.errorObject(text, kindOf(http.StatusUnprocessableEntity), param, first.kind)
	b.raw("}")
}

// appendText appends a short text as a JSON string.
func appendText(b []byte, s string) []byte {
	w := buffer{b: b}
	quote(&w, s)
	return w.b
}
