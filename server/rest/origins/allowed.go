package origins

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/nereid-serving/nereid/server/http1"
)

// Any allows all origins.
const Any = "*"

// exposed are the additional headers of replies that a page may read.
const exposed = "Access-Control-Expose-Headers: Inference-Header-Content-Length\r\n"

// Allowed are the origins that may use the endpoints.
type Allowed struct {
	any   bool
	lines map[string]string // header lines of replies, by origin
}

// New returns nil, which allows none, for an empty list. An origin is a scheme, a host and a port
// that is not the scheme's default, as browsers write it: https://example.org:8443.
func New(list []string) (*Allowed, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // as the doc says
	}
	a := &Allowed{lines: make(map[string]string)}
	for _, origin := range list {
		if origin == Any {
			a.any = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.ContainsAny(origin, "\r\n*") {
			return nil, fmt.Errorf("origin %q: want a scheme and a host, and a port if it is not the usual one, such as https://example.org, or *", origin)
		}
		a.lines[strings.ToLower(origin)] = "Access-Control-Allow-Origin: " + origin + "\r\nVary: Origin\r\n" + exposed
	}
	return a, nil
}

// Names reports whether the list has the origin of the requesting page by name, not only as "*".
func (a *Allowed) Names(r *http1.Request) bool {
	origin, has := r.Header("Origin")
	return has && a.lines[strings.ToLower(origin)] != ""
}

// Preflight adds CORS headers to a reply. It answers a browser's preflight request and then returns
// true.
func (a *Allowed) Preflight(w *http1.Reply, r *http1.Request) bool {
	origin, has := r.Header("Origin")
	if !has {
		return false
	}
	if a.any {
		w.Lines = "Access-Control-Allow-Origin: *\r\n" + exposed
	} else if w.Lines = a.lines[strings.ToLower(origin)]; w.Lines == "" {
		w.Lines = "Vary: Origin\r\n"
		return false
	}
	method, asks := r.Header("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || !asks || method == "" {
		return false
	}
	w.Lines += "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Max-Age: 600\r\n"
	if wanted, some := r.Header("Access-Control-Request-Headers"); some && wanted != "" {
		w.Lines += "Access-Control-Allow-Headers: " + wanted + "\r\n" // a header of a request has no line breaks
	}
	w.Send(http.StatusOK, nil)
	return true
}
