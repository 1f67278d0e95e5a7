package page

import (
	"net/http"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
)

// mostLines bounds the lines of the log's page, and fewErrors the errors on the overview.
const (
	mostLines = 500
	fewErrors = 3
)

// logPage is the page of the log.
type logPage struct {
	frame
	Lines  []line
	Errors bool // only errors are shown
}

func (p *Pages) serveLog(w *http1.Reply, r *http1.Request, errors bool) {
	if !p.open(server.GroupLogging) {
		p.fail(w, http.StatusForbidden, "--http-restricted-api closes the group logging to browsers.")
		return
	}
	self := "/log"
	if errors {
		self = "/errors"
	}
	now := p.status.Snapshot(r.Context(), 0, mostLines)
	page := logPage{frame: p.frame("Log", self), Errors: errors, Lines: lines(now.Log)}
	if errors {
		page.Title, page.Lines = "Errors", lines(now.Errors)
	}
	p.show(w, http.StatusOK, "log", page)
}
