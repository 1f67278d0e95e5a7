package top

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/cli/client"
)

// usualMetrics is Triton's port for metrics, which is two above the HTTP port.
const usualMetrics = 8002

// Patterns for the page on which Nereid lists its endpoints (server/rest/pages).
var (
	pageOfNereid = regexp.MustCompile(`^Nereid\b`)
	announced    = regexp.MustCompile(`(?m)^Metrics for Prometheus: port ([1-9][0-9]{0,4}),`)
)

// errNoMetrics is the error of a server that serves no metrics.
var errNoMetrics = errors.New("the server names no port for them (--allow-metrics=false); give one with --metrics-url")

// whereabouts is the address of the metrics and the status.
type whereabouts struct {
	url *client.Address // nil if unknown
	// settled: the address is final. guess: the server has not confirmed it.
	settled, guess bool
}

// locate finds the address of the metrics, unless the user has set it. It asks the server until it
// has replied once.
func (p *poller) locate(ctx context.Context) {
	if p.where.settled {
		return
	}
	server := p.options.server
	at := func(port int) *client.Address {
		host := cmp.Or(server.Hostname(), "localhost") // a Unix socket has no host
		return &client.Address{URL: url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port))}}
	}
	page, err := p.server.Ask(ctx, http.MethodGet, "/docs", nil)
	if err == nil && pageOfNereid.Match(page) {
		where := whereabouts{settled: true}
		if found := announced.FindSubmatch(page); found != nil {
			port, _ := strconv.Atoi(string(found[1]))
			where.url = at(port)
		}
		p.place(where)
		return
	}
	port := usualMetrics
	if given, err := strconv.Atoi(server.Port()); err == nil && given <= 65533 {
		port = given + 2
	}
	p.place(whereabouts{url: at(port), settled: err == nil || client.IsRefusal(err), guess: port != usualMetrics || server.Scheme == "https"})
}

// place sets the address of the metrics.
func (p *poller) place(where whereabouts) {
	p.where = where
	if where.url != nil {
		p.metrics.Close()
		p.metrics = p.options.endpoint(where.url)
	}
}

// note says that a guessed address is used, or returns "".
func (w whereabouts) note(read bool) string {
	if !w.guess {
		return ""
	}
	text := "the server does not name its metrics endpoint, and " + w.url.Host + " is a guess: set it with --metrics-url"
	if read {
		text = "metrics come from " + w.url.Host + ": " + strings.Replace(text, "and "+w.url.Host, "and that", 1)
	}
	return text
}

// named returns an address for a note.
func (w whereabouts) named(path string) string {
	if w.url == nil {
		return ""
	}
	return " at " + w.url.URL.String() + path
}

// askThere queries a path at the address of the metrics.
func (p *poller) askThere(ctx context.Context, path string, read func(io.Reader) error) error {
	if p.where.url == nil {
		return errNoMetrics
	}
	return p.metrics.Read(ctx, http.MethodGet, path, nil, read)
}
