package top

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// usualMetrics is Triton's port of metrics, two above that of HTTP.
const usualMetrics = 8002

// Of the page with which a Nereid tells where its endpoints are (server/rest/pages).
var (
	pageOfNereid = regexp.MustCompile(`^Nereid\b`)
	announced    = regexp.MustCompile(`(?m)^Metrics for Prometheus: port ([1-9][0-9]{0,4}),`)
)

// errNoMetrics is the error of a server that serves no metrics.
var errNoMetrics = errors.New("the server names no port for them (--allow-metrics=false); --metrics-url names one")

// whereabouts is where the metrics and the status are asked for.
type whereabouts struct {
	url *url.URL // nil: nowhere
	// settled: the address is final. guess: the server has not confirmed it.
	settled, guess bool
}

// locate finds out where the metrics are, unless the user has said it. The server is asked until it has replied once.
func (p *poller) locate(ctx context.Context) {
	if p.where.settled {
		return
	}
	server := p.options.server
	at := func(port int) *url.URL {
		return &url.URL{Scheme: "http", Host: net.JoinHostPort(server.Hostname(), strconv.Itoa(port))}
	}
	page, err := p.client.ask(ctx, askLimit, http.MethodGet, server, "/docs", nil)
	if err == nil && pageOfNereid.Match(page) {
		p.where = whereabouts{settled: true}
		if found := announced.FindSubmatch(page); found != nil {
			port, _ := strconv.Atoi(string(found[1]))
			p.where.url = at(port)
		}
		return
	}
	port := usualMetrics
	if given, err := strconv.Atoi(server.Port()); err == nil && given <= 65533 {
		port = given + 2
	}
	p.where = whereabouts{url: at(port), settled: err == nil || isRefusal(err), guess: port != usualMetrics || server.Scheme == "https"}
}

// note says that a guess is shown, "" if none is.
func (w whereabouts) note(read bool) string {
	if !w.guess {
		return ""
	}
	text := "the server does not say where its metrics are, and " + w.url.Host + " is a guess: --metrics-url names the place"
	if read {
		text = "metrics are those at " + w.url.Host + ": " + strings.Replace(text, "and "+w.url.Host, "and that", 1)
	}
	return text
}

// named is where something is asked for, as notes say it.
func (w whereabouts) named(path string) string {
	if w.url == nil {
		return ""
	}
	return " at " + w.url.String() + path
}

// askThere asks for something where the metrics are.
func (p *poller) askThere(ctx context.Context, path string) ([]byte, error) {
	if p.where.url == nil {
		return nil, errNoMetrics
	}
	return p.client.ask(ctx, askLimit, http.MethodGet, p.where.url, path, nil)
}
