package page

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/page/admission"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// Pages serve the page.
type Pages struct {
	cfg          Config
	core         server.Core
	files        Files
	status       Status
	gate         *admission.Gate
	restrictions server.Restrictions
	templates    *template.Template
	assets       assets
	allocate     server.Allocator
	bodies       *body.Gatherer
}

// route is a parsed path.
type route struct {
	page    string // overview, model, log, errors; "": none
	model   string
	version int64
	action  string // of a POST
}

// Serve serves one request: a Handler of package http1.
func (p *Pages) Serve(w *http1.Reply, r *http1.Request) {
	w.Lines = admission.Headers
	if err := p.gate.Admit(r); err != nil {
		p.refuse(w, err)
		return
	}
	if file, ok := p.assets.byPath[r.Path()]; ok && r.Method != http.MethodPost {
		w.Lines += admission.Kept
		w.ContentType = file.contentType
		w.Send(http.StatusOK, file.content)
		return
	}
	w.Lines += admission.Fresh
	at := routeOf(r.Path())
	switch {
	case at.page == "":
		p.fail(w, http.StatusNotFound, "There is no page at this address.")
	case r.Method == http.MethodPost && at.action == "":
		p.refuse(w, &admission.Refusal{Status: http.StatusMethodNotAllowed, Text: "Method Not Allowed"})
	case r.Method == http.MethodPost:
		p.post(w, r, at)
	case at.action != "": // a reload of a form's answer
		redirect(w, modelPath(at.model, at.version))
	case at.page == "overview":
		p.serveOverview(w, r)
	case at.page == "log", at.page == "errors":
		p.serveLog(w, r, at.page == "errors")
	default:
		p.serveModel(w, r, &modelRequest{name: at.model, version: at.version})
	}
}

// routeOf parses a path. Its segments are escaped.
func routeOf(path string) (at route) {
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 6)
	for i, s := range segments {
		unescaped, err := url.PathUnescape(s) // bound: a request line
		if err != nil || unescaped == "" && path != "/" {
			return at
		}
		segments[i] = unescaped
	}
	at.version = infer.LatestVersion
	switch n := len(segments); {
	case path == "/":
		return route{page: "overview"}
	case path == "/log", path == "/errors":
		return route{page: path[1:]}
	case segments[0] != "models" || n < 2:
		return route{}
	case n >= 4 && segments[2] == "versions":
		v, err := strconv.ParseInt(segments[3], 10, 64)
		if err != nil || v < 1 {
			return route{}
		}
		at.version = v
		segments = append(segments[:2], segments[4:]...) // bound: six segments
	}
	at.page, at.model = "model", segments[1]
	switch rest := segments[2:]; {
	case len(rest) == 0:
		return at
	case len(rest) == 1 && actions[rest[0]]:
		at.action = rest[0]
		return at
	}
	return route{}
}

// actions are the actions of a POST.
var actions = map[string]bool{"infer": true, "load": true, "unload": true, "instances": true}

// modelPath is the path of a model's page.
func modelPath(name string, version int64) string {
	path := "/models/" + url.PathEscape(name) // bound: the name of a model
	if version != infer.LatestVersion {
		path += "/versions/" + strconv.FormatInt(version, 10)
	}
	return path
}

func redirect(w *http1.Reply, path string) {
	w.Header = http1.Field{Name: "Location", Value: path}
	w.Send(http.StatusSeeOther, nil)
}

// open reports whether browsers may use a group of endpoints.
func (p *Pages) open(groups ...string) bool {
	for _, group := range groups {
		if _, closed := p.restrictions[group]; closed {
			return false
		}
	}
	return true
}

// controls reports whether models can be loaded and unloaded here.
func (p *Pages) controls() bool { return p.cfg.Explicit && p.open(server.GroupModelRepository) }

// frame is the common part of all pages.
type frame struct {
	Title   string
	Server  string
	Version string
	Assets  map[string]string
	Token   string
	// Self is the path of this page without a form's answer; the script reloads it. It is "" for
	// pages that do not change.
	Self string
	Logs bool // the log is not restricted
}

func (p *Pages) frame(title, self string) frame {
	version := p.cfg.Build
	if version == "" {
		version = "serves Triton " + p.cfg.ServerVersion
	}
	return frame{Title: title, Server: p.cfg.ServerName, Version: version, Assets: p.assets.Paths, Token: p.gate.Token(), Self: self, Logs: p.open(server.GroupLogging)}
}

// show replies with a template.
func (p *Pages) show(w *http1.Reply, status int, name string, data any) {
	s := sheet{charge: w.Charge()}
	switch err := p.templates.ExecuteTemplate(&s, name, data); { // bound: charged by the sheet
	case s.refused != nil:
		p.refuse(w, &admission.Refusal{Status: http.StatusServiceUnavailable, Text: infer.AsError(s.refused).Message})
		return
	case err != nil:
		panic(err) // a template that does not fit its data is a bug
	}
	w.ContentType = "text/html; charset=utf-8"
	w.Send(status, s.text)
}

// sheet is a page that is being assembled. Its text is charged.
type sheet struct {
	charge  *budget.Charge
	text    []byte
	refused error // of the charge
}

// Write implements io.Writer.
func (s *sheet) Write(p []byte) (int, error) {
	s.text, s.refused = budget.Append(s.charge, budget.Replies, s.text, p...)
	if s.refused != nil {
		return 0, s.refused
	}
	return len(p), nil
}

// problem is a page with one sentence.
type problem struct {
	frame
	Text string
}

func (p *Pages) fail(w *http1.Reply, status int, text string) {
	p.show(w, status, "problem", problem{p.frame(http.StatusText(status), ""), text})
}

// refuse replies briefly to a request that did not come from the page.
func (p *Pages) refuse(w *http1.Reply, err error) {
	if refusal := admission.AsRefusal(err); refusal != nil {
		w.ContentType = "text/plain; charset=utf-8"
		w.Send(refusal.Status, []byte(refusal.Text+"\n")) // bound: the server's own texts
		return
	}
	p.fail(w, http.StatusInternalServerError, err.Error())
}
