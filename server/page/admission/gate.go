package admission

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/nereid-serving/nereid/server/http1"
)

// Gate admits requests to one page.
type Gate struct {
	hosts map[string]bool // besides localhost, in lower case
	token string
}

// New returns a Gate with a new token. hosts are the names under which browsers may reach the page,
// without a port.
func New(hosts []string) (*Gate, error) {
	g := &Gate{hosts: make(map[string]bool)}
	for _, host := range hosts {
		if err := CheckHost(host); err != nil {
			return nil, err
		}
		g.hosts[strings.ToLower(host)] = true // bound: the configured names
	}
	g.token = newToken()
	return g, nil
}

// CheckHost rejects an invalid host name.
func CheckHost(host string) error {
	if host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != "" {
		return fmt.Errorf("host %q: want a name without scheme and port, such as gpu1.example.org", host)
	}
	return nil
}

// Refusal is the error of a request that is not served.
type Refusal struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Admit returns a *Refusal unless a request may be served. A POST also needs the token.
func (g *Gate) Admit(r *http1.Request) error {
	host, _ := r.Header("Host")
	if !g.known(host) {
		return &Refusal{http.StatusMisdirectedRequest, fmt.Sprintf("The page is not served under the name %.100q. Open it by the server's address or as localhost, or start the server with --http-ui-host=%s.", host, allowing(host))}
	}
	if err := fromElsewhere(r); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return nil
	case http.MethodPost:
	default:
		return &Refusal{http.StatusMethodNotAllowed, "Method Not Allowed"}
	}
	origin, _ := r.Header("Origin")
	scheme, from, ok := strings.Cut(strings.ToLower(origin), "://")                    // bound: a header
	if !ok || scheme != "http" && scheme != "https" || from != strings.ToLower(host) { // bound: a header
		return &Refusal{http.StatusForbidden, fmt.Sprintf("A form must come from the page at %.100q, but this request has the origin %.100q. A proxy before the page must pass the browser's Host header on unchanged.", host, origin)}
	}
	return nil
}

// allowing returns the value of --http-ui-host that allows a host.
func allowing(host string) string {
	if name := nameOf(host); CheckHost(name) == nil && len(name) <= 100 {
		return name
	}
	return "NAME"
}

// nameOf returns a host in lower case, without its port.
func nameOf(host string) string {
	name := strings.ToLower(host) // bound: a header
	if end := strings.LastIndexByte(name, ':'); end > strings.LastIndexByte(name, ']') {
		name = name[:end]
	}
	return name
}

// known reports whether a host is this page's. Another site can point its name at this machine, but
// cannot use an address or localhost.
func (g *Gate) known(host string) bool {
	name := nameOf(host)
	if inner, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || g.hosts[name]
}

var errForeign = &Refusal{http.StatusForbidden, "Pages of other sites cannot use this page, and no setting allows it. Open the page in a tab of its own; programs use the HTTP endpoint."}

// fromElsewhere rejects requests for pages of other sites, except navigation by a link. Old
// browsers do not send the header.
func fromElsewhere(r *http1.Request) error {
	switch site, says := r.Header("Sec-Fetch-Site"); {
	case !says, site == "same-origin", site == "none":
		return nil
	}
	mode, _ := r.Header("Sec-Fetch-Mode")
	destination, _ := r.Header("Sec-Fetch-Dest")
	if r.Method == http.MethodGet && mode == "navigate" && destination == "document" {
		return nil
	}
	return errForeign
}

// AsRefusal returns err as a Refusal, or nil.
func AsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
