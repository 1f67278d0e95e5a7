package admission_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/page/admission"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestAdmitRefusesOtherSites checks which requests are admitted, by the headers that browsers send
// for this page and for other sites.
func TestAdmitRefusesOtherSites(t *testing.T) {
	g, err := admission.New([]string{"Gpu1.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, method, headers string
		want                  int // 0: served
	}{
		{"loopback", "GET", "Host: 127.0.0.1:8003", 0},
		{"loopback, version 6", "GET", "Host: [::1]:8003", 0},
		{"without a port", "HEAD", "Host: [::1]", 0},
		{"localhost", "GET", "Host: LOCALHOST:9", 0},
		{"below localhost", "GET", "Host: a.localhost", 0},
		{"an address elsewhere", "GET", "Host: 10.1.2.3:8003", 0},
		{"a name of the flag", "GET", "Host: gpu1.example.org:8003", 0},
		{"rebound name", "GET", "Host: evil.example:8003", 421},
		{"rebound name like localhost", "GET", "Host: localhost.evil.example", 421},
		{"rebound name with an address in it", "GET", "Host: 127.0.0.1.evil.example", 421},
		{"half an address", "GET", "Host: [::1", 421},
		{"no host", "GET", "X: y", 421},
		{"rebound POST", "POST", "Host: evil.example|Origin: http://evil.example", 421},
		{"own form", "POST", "Host: localhost:8003|Origin: http://localhost:8003|Sec-Fetch-Site: same-origin", 0},
		{"own form through TLS", "POST", "Host: gpu1.example.org|Origin: https://GPU1.example.org", 0},
		{"form of another site", "POST", "Host: localhost:8003|Origin: http://evil.example|Sec-Fetch-Site: cross-site", 403},
		{"form of another site in an old browser", "POST", "Host: localhost:8003|Origin: http://evil.example", 403},
		{"form of another port", "POST", "Host: localhost:8003|Origin: http://localhost:3000|Sec-Fetch-Site: same-site", 403},
		{"form of another port in an old browser", "POST", "Host: localhost:8003|Origin: http://localhost:3000", 403},
		{"sandboxed form", "POST", "Host: localhost:8003|Origin: null", 403},
		{"form without an origin", "POST", "Host: localhost:8003", 403},
		{"form of a file", "POST", "Host: localhost:8003|Origin: file://localhost:8003", 403},
		{"link", "GET", "Host: localhost|Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", 0},
		{"typed", "GET", "Host: localhost|Sec-Fetch-Site: none|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", 0},
		{"frame", "GET", "Host: localhost|Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: iframe", 403},
		{"picture", "GET", "Host: localhost|Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: no-cors|Sec-Fetch-Dest: image", 403},
		{"script of another port", "GET", "Host: localhost|Sec-Fetch-Site: same-site|Sec-Fetch-Mode: cors|Sec-Fetch-Dest: empty", 403},
		{"question of a browser", "OPTIONS", "Host: localhost|Origin: http://evil.example", 405},
		{"another method", "DELETE", "Host: localhost", 405},
	} {
		r := &http1.Request{Method: c.method}
		for line := range strings.SplitSeq(c.headers, "|") {
			name, value, _ := strings.Cut(line, ": ")
			r.Fields = append(r.Fields, http1.Field{Name: name, Value: value})
		}
		got := 0
		if refusal := admission.AsRefusal(g.Admit(r)); refusal != nil {
			got = refusal.Status
		}
		if got != c.want {
			t.Errorf("%s: got status %d, want %d (0: served)", c.name, got, c.want)
		}
	}
}

func TestTokensAreOfOneServer(t *testing.T) {
	g, _ := admission.New(nil)
	other, _ := admission.New(nil)
	if err := g.Trusts(g.Token()); err != nil {
		t.Errorf("its own token: %v", err)
	}
	for _, token := range []string{"", other.Token(), g.Token()[1:], g.Token() + "A"} {
		if refusal := admission.AsRefusal(g.Trusts(token)); refusal == nil || refusal.Status != http.StatusForbidden {
			t.Errorf("token %q: got %v, want it refused with 403", token, refusal)
		}
	}
	if len(g.Token()) != 43 {
		t.Errorf("the token has %d characters, want 43 for 256 bits", len(g.Token()))
	}
}

// TestRefusalsNameTheRemedy checks that the texts of refusals name the settings to change.
func TestRefusalsNameTheRemedy(t *testing.T) {
	g, _ := admission.New(nil)
	for headers, want := range map[string]string{
		"Host: GPU1:8003": "or start the server with --http-ui-host=gpu1.",
		"Host: a b":       "or start the server with --http-ui-host=NAME.",
		"Host: localhost:8003|Origin: http://gpu1:8003": `"localhost:8003", but this request has the origin "http://gpu1:8003". A proxy before the page must pass the browser's Host header on unchanged.`,
	} {
		r := &http1.Request{Method: http.MethodPost}
		for line := range strings.SplitSeq(headers, "|") {
			name, value, _ := strings.Cut(line, ": ")
			r.Fields = append(r.Fields, http1.Field{Name: name, Value: value})
		}
		if refusal := admission.AsRefusal(g.Admit(r)); refusal == nil || !strings.HasSuffix(refusal.Text, want) {
			t.Errorf("%s: got %v, want %q", headers, refusal, want)
		}
	}
}

func TestHostsAreNames(t *testing.T) {
	for _, host := range []string{"", "http://a", "a:8003", "a/b", "a b", "é"} {
		if _, err := admission.New([]string{host}); err == nil {
			t.Errorf("host %q is taken, want it refused", host)
		}
	}
}
