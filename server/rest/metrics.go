package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/page/admission"
	"github.com/nereid-serving/nereid/server/status"
)

// NewMetrics returns a front end that serves the metrics of exposition and, unless it is nil, the
// status of keeper. It uses the address, the port, the hosts and the limits of cfg.
func NewMetrics(cfg Config, account *budget.Account, exposition http.Handler, keeper *status.Keeper, log zerolog.Logger) (*FrontEnd, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	gate, err := admission.New(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	serve := func(w *http1.Reply, r *http1.Request) { serveMetrics(w, r, exposition, keeper, gate) }
	return Front(cfg, account, serve, log), nil
}

// serveMetrics serves the exposition at /metrics and /metrics/, and the status at /status. The
// status has names and texts of models, so pages of other sites cannot read it through a browser.
// Other paths are empty; all methods but GET are rejected.
func serveMetrics(w *http1.Reply, r *http1.Request, exposition http.Handler, keeper *status.Keeper, gate *admission.Gate) {
	if r.Method != http.MethodGet {
		RefuseMethod(w)
		return
	}
	switch path := r.Path(); {
	case path == "/metrics" || path == "/metrics/":
		WriteExposition(w, r, exposition, typeMetric)
	case path == "/status" && keeper != nil:
		if err := admission.AsRefusal(gate.Admit(r)); err != nil {
			writeStatus(w, err.Status, err.Text)
			return
		}
		serveStatus(w, r, keeper)
	default:
		w.Send(http.StatusOK, nil)
	}
}

// statusLines is the default number of log lines in a status.
const statusLines = 100

// mostQuery bounds the query of a status, which has two numbers, in bytes.
const mostQuery = 256

// serveStatus replies with a status.Snapshot. The query has lines, the number of log lines and of
// errors, and after, the sequence number after which they begin.
func serveStatus(w *http1.Reply, r *http1.Request, keeper *status.Keeper) {
	text := r.Query()
	query, err := url.ParseQuery(text[:min(len(text), mostQuery)])
	if err != nil || len(text) > mostQuery {
		WriteError(w, infer.Errorf(infer.InvalidArg, "the query of /status is malformed"))
		return
	}
	numbers := map[string]uint64{"lines": statusLines, "after": 0}
	for name, values := range query {
		n, err := strconv.ParseUint(values[len(values)-1], 10, 63)
		if _, known := numbers[name]; !known || err != nil {
			WriteError(w, infer.Errorf(infer.InvalidArg, "/status takes lines=NUMBER and after=NUMBER, got '%.64s=%.64s'", name, values[len(values)-1]))
			return
		}
		numbers[name] = n // bound: two names
	}
	after, lines := numbers["after"], int(numbers["lines"])
	if err := w.Charge().Take(budget.Replies, keeper.SnapshotBytes(after, lines)); err != nil {
		WriteError(w, err)
		return
	}
	snapshot := keeper.Snapshot(r.Context(), after, lines)
	if err := w.Charge().Take(budget.Replies, snapshot.MostBytes()); err != nil {
		WriteError(w, err)
		return
	}
	body, err := json.Marshal(snapshot) // bound: charged
	if err != nil {
		WriteError(w, infer.Errorf(infer.Internal, "the status cannot be written"))
		return
	}
	w.ContentType = typeJSON
	w.Lines += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
	w.Send(http.StatusOK, body)
}

// expositionBytes is the memory for two pieces of the exposition: one is rendered while the other
// one waits.
const expositionBytes = 192 << 10

// WriteExposition replies with the exposition, with that content type.
func WriteExposition(w *http1.Reply, r *http1.Request, exposition http.Handler, contentType string) {
	// Without headers: neither another format nor compression, whatever the client accepts.
	if err := w.Charge().Take(budget.Replies, expositionBytes); err != nil {
		WriteError(w, err)
		return
	}
	scrape := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody}).WithContext(r.Context())
	w.ContentType = contentType
	page := piecewise{reply: w, header: http.Header{}, status: http.StatusOK}
	exposition.ServeHTTP(&page, scrape)
	page.end()
}

// piecewise replies with a handler's output. A single write becomes an ordinary reply. Several are
// sent piece by piece, so that no more than a piece is buffered for a slow client.
type piecewise struct {
	reply  *http1.Reply
	header http.Header
	status int
	first  []byte // the first piece, until there is another
	begun  bool   // the reply has begun
}

func (p *piecewise) Header() http.Header    { return p.header }
func (p *piecewise) WriteHeader(status int) { p.status = status }

func (p *piecewise) Write(b []byte) (n int, err error) {
	switch {
	case p.begun:
		err = p.reply.Continue(b)
	case p.first == nil:
		p.first = slices.Clone(b) // bound: expositionBytes
	default:
		p.begun = true
		p.reply.Begin(p.status)
		err = p.reply.Continue(p.first, b)
		p.first = nil
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *piecewise) end() {
	if p.begun {
		p.reply.End()
		return
	}
	p.reply.Send(p.status, p.first)
}
