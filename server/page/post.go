package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
)

// mostParts bounds the fields of a form.
const mostParts = 4096

// sent are the fields of a form, and its files, by name.
type sent map[string][]byte

func (s sent) text(name string) string { return string(s[name]) } // bound: charged by parse

// post serves a POST of a form.
func (p *Pages) post(w *http1.Reply, r *http1.Request, at route) {
	read := p.bodies.Small
	if at.action == "infer" {
		read = p.bodies.Whole
	}
	switch limit := p.cfg.MaxInputBytes; {
	case r.Length < 0:
		p.fail(w, http.StatusLengthRequired, "A form comes with its length.")
		return
	case r.Length > limit:
		p.fail(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The form has %d bytes, at most %d are allowed. --http-max-input-size changes the limit.", r.Length, limit))
		return
	}
	err := read(r, func(body []byte, c *budget.Charge) error {
		fields, err := parse(r, body, c)
		if err != nil {
			return err
		}
		if err := p.gate.Trusts(fields.text("token")); err != nil {
			p.refuse(w, err)
			return nil
		}
		p.act(w, r, at, fields, c)
		return nil
	})
	if err != nil {
		p.fail(w, http.StatusBadRequest, infer.AsError(err).Message)
	}
}

// act performs the action of a form with the token, and replies.
func (p *Pages) act(w *http1.Reply, r *http1.Request, at route, fields sent, c *budget.Charge) {
	if at.action == "infer" {
		if !p.open(server.GroupInference, server.GroupMetadata) {
			p.fail(w, http.StatusForbidden, "--http-restricted-api closes requests to browsers.")
			return
		}
		p.serveInfer(w, r, at, fields, c)
		return
	}
	if !p.controls() {
		p.fail(w, http.StatusForbidden, "Clients do not control models here: that takes --model-control-mode=explicit, and the group model-repository without a restriction.")
		return
	}
	if err := p.control(r, at, fields); err != nil {
		p.serveModel(w, r, &modelRequest{name: at.model, version: at.version, status: http.StatusConflict, problem: infer.AsError(err).Message})
		return
	}
	redirect(w, modelPath(at.model, infer.LatestVersion))
}

// control loads or unloads a model, or changes its instances. It returns at the end, and does not
// stop if the browser disconnects: the user may watch the progress on another page.
func (p *Pages) control(r *http1.Request, at route, fields sent) error {
	ctx := r.Lifetime()
	switch at.action {
	case "load":
		return p.core.Load(ctx, at.model, "", nil)
	case "unload":
		return p.core.Unload(ctx, at.model, fields.text("dependents") != "")
	default:
		count, err := strconv.Atoi(fields.text("count"))
		if err != nil {
			return infer.Errorf(infer.InvalidArg, "the number of instances is %.20q, want a whole number", fields.text("count"))
		}
		_, err = p.core.SetInstances(ctx, at.model, fields.text("group"), count)
		return err
	}
}

// parse reads the fields of a form of type multipart/form-data. They are copies, charged to c.
func parse(r *http1.Request, body []byte, c *budget.Charge) (sent, error) {
	header, _ := r.Header("Content-Type")
	kind, parameters, err := mime.ParseMediaType(header)
	if err != nil || kind != "multipart/form-data" || parameters["boundary"] == "" {
		return nil, infer.Errorf(infer.InvalidArg, "The form has the type %.60q, want multipart/form-data.", header)
	}
	// ReadAll doubles its buffer as it grows, and the fields of the form are copied as texts.
	if err := c.Take(budget.JSON, 3*int64(len(body))); err != nil {
		return nil, err
	}
	fields := sent{}
	reader := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	for range mostParts {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return fields, nil
		}
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArg, "The form is malformed: %v.", err)
		}
		value, err := io.ReadAll(part) // bound: charged
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArg, "The form is malformed: %v.", err)
		}
		if part.FileName() == "" && len(value) == 0 && isFile(part) {
			continue // no file was chosen
		}
		fields[part.FormName()] = value
	}
	return nil, infer.Errorf(infer.InvalidArg, "The form has more than %d fields.", mostParts)
}

// isFile reports whether a part is of a file field.
func isFile(part *multipart.Part) bool { return part.Header.Get("Content-Type") != "" }
