package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostileRequests are what a client may send instead of a request, with the
// statuses of all replies, the last of which ends the connection unless it is
// open. Each is tried on net/http too: what it refuses is refused here, but for
// the lenient ones, which say why not.
var hostileRequests = []struct {
	name, text string
	want       []int
	open       bool
	lenient    string
}{
	// Request lines.
	{"plain", get("/v2"), []int{200}, true, ""},
	{"lower case method", "get /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{405}, true, ""},
	{"unknown method", "FETCH /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{405}, true, ""},
	{"method with a slash", "GE/T /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"method with a NUL", "G\x00T /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"method beyond ASCII", "GÉT /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"no method", " /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"CONNECT", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n" + get("/v2"), []int{501}, false, ""},
	{"two spaces", "GET  /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"tabulators", "GET\t/v2\tHTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"space at the end", "GET /v2 HTTP/1.1 \r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"no version", "GET /v2\r\n\r\n", []int{400}, false, ""},
	{"no target", "GET HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"lower case version", "GET /v2 http/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"HTTP/0.9", "GET /v2 HTTP/0.9\r\nHost: h\r\n\r\n", []int{505}, false, ""},
	{"HTTP/1.2", "GET /v2 HTTP/1.2\r\nHost: h\r\n\r\n", []int{200}, true, "a higher minor version is the highest known (RFC 9110, 2.5)"},
	{"HTTP/1.10", "GET /v2 HTTP/1.10\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"HTTP/2.0", "GET /v2 HTTP/2.0\r\nHost: h\r\n\r\n", []int{505}, false, ""},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{505}, false, ""},
	{"version with a plus", "GET /v2 HTTP/+1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}, false, ""},
	{"bare LF", "GET /v2 HTTP/1.1\nHost: h\n\n", []int{400}, false, "net/http takes it for a line's end"},
	{"bare LF at one line", "GET /v2 HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", []int{400}, false, ""},
	{"bare CR in the request line", "GET /v2\rHTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"blank lines before", "\r\n\r\n" + get("/v2"), []int{200}, true, "at least one is to be passed over (RFC 9112, 2.2)"},

	// Targets.
	{"query", get("/v2?a=/v2/x"), []int{200}, true, ""},
	{"fragment", get("/v2#a"), []int{404}, true, ""},
	{"percent", get("/v2/models/id_int32%2Fready"), []int{404}, true, ""},
	{"percent without digits", get("/v2/models/%zz"), []int{404}, true, "such a name may be that of a model"},
	{"percent NUL", get("/v2/models/%00"), []int{404}, true, ""},
	{"dots", get("/x/../v2"), []int{404}, true, ""},
	{"two slashes", get("//v2"), []int{404}, true, ""},
	{"backslash", get("/v2\\x"), []int{404}, true, ""},
	{"NUL in the target", get("/v2\x00"), []int{400}, false, ""},
	{"DEL in the target", get("/v2\x7f"), []int{400}, false, ""},
	{"absolute form", get("http://h/v2"), []int{200}, true, ""},
	{"absolute form, capitals", get("HTTP://h:80/v2"), []int{200}, true, ""},
	{"absolute form without path", get("http://h"), []int{404}, true, ""},
	{"absolute form, path in the query", get("http://h?/v2"), []int{404}, true, ""},
	{"absolute form, path in the fragment", get("http://h#/v2"), []int{400}, false, ""},
	{"absolute form with a fragment", get("http://h/v2#a"), []int{400}, false, ""},
	{"absolute form, no scheme", get("://h/v2"), []int{400}, false, ""},
	{"absolute form, odd scheme", get("x?://h/v2"), []int{400}, false, ""},
	{"absolute form, other scheme", get("ftp://h/v2"), []int{400}, false, ""},
	{"absolute form, scheme with a Kelvin sign", get("\u212attp://h/v2"), []int{400}, false, ""},
	{"absolute form, no host", get("http:///v2"), []int{400}, false, ""},
	{"absolute form with a user", get("http://u@h/v2"), []int{400}, false, ""},
	{"authority form", get("h:80"), []int{400}, false, ""},
	{"relative", get("v2"), []int{400}, false, ""},
	{"asterisk", get("*"), []int{400}, false, ""},
	{"asterisk for OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", []int{404}, true, ""},

	// Headers.
	{"no Host", "GET /v2 HTTP/1.1\r\n\r\n", []int{400}, false, ""},
	{"no Host in HTTP/1.0", "GET /v2 HTTP/1.0\r\n\r\n", []int{200}, false, ""},
	{"two Hosts", "GET /v2 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"two Hosts in HTTP/1.0", "GET /v2 HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"no Host in the absolute form", "GET http://h/v2 HTTP/1.1\r\n\r\n", []int{400}, false, ""},
	{"Host with a path", "GET /v2 HTTP/1.1\r\nHost: h/x\r\n\r\n", []int{400}, false, ""},
	{"Host with a user", "GET /v2 HTTP/1.1\r\nHost: a@h\r\n\r\n", []int{400}, false, ""},
	{"list of Hosts", "GET /v2 HTTP/1.1\r\nHost: a, b\r\n\r\n", []int{400}, false, ""},
	{"Host beyond ASCII", "GET /v2 HTTP/1.1\r\nHost: ho\u017ft\r\n\r\n", []int{400}, false, ""},
	{"IPv6 Host", "GET /v2 HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", []int{200}, true, ""},
	{"empty Host", "GET /v2 HTTP/1.1\r\nHost:\r\n\r\n", []int{200}, true, ""},
	{"folded line", "GET /v2 HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", []int{400}, false, "net/http joins the lines"},
	{"folded first line", "GET /v2 HTTP/1.1\r\n Host: h\r\n\r\n", []int{400}, false, ""},
	{"folded Transfer-Encoding", "POST /v2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", []int{400}, false, "net/http joins the lines"},
	{"space before the colon", "GET /v2 HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", []int{400}, false, ""},
	{"no colon", "GET /v2 HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", []int{400}, false, ""},
	{"no name", "GET /v2 HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", []int{400}, false, ""},
	{"parenthesis in a name", "GET /v2 HTTP/1.1\r\nHost: h\r\nA(: b\r\n\r\n", []int{400}, false, ""},
	{"name beyond ASCII", "GET /v2 HTTP/1.1\r\nHost: h\r\n\u212aey: b\r\n\r\n", []int{400}, false, ""},
	{"NUL in a value", "GET /v2 HTTP/1.1\r\nHost: h\r\nA: b\x00\r\n\r\n", []int{400}, false, ""},
	{"bare CR in a value", "GET /v2 HTTP/1.1\r\nHost: h\r\nA: b\rContent-Length: 9\r\n\r\n", []int{400}, false, ""},
	{"bare CR before the blank line", "GET /v2 HTTP/1.1\r\nHost: h\r\n\r\r\n\r\n", []int{400}, false, ""},
	{"long header", "GET /v2 HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("b", 9000) + "\r\n\r\n", []int{431}, false, "net/http takes 1 MiB"},
	{"many headers", "GET /v2 HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", 2000) + "\r\n", []int{431}, false, "net/http takes 1 MiB"},
	{"long request line", "GET /" + strings.Repeat("b", 9000), []int{431}, false, "net/http takes 1 MiB"},
	{"Connection with a long s", "GET /v2 HTTP/1.1\r\nHost: h\r\nConnection: clo\u017fe\r\n\r\n", []int{200}, true, ""},
	{"Connection list", "GET /v2 HTTP/1.1\r\nHost: h\r\nConnection: a,, CLOSE\r\n\r\n", []int{200}, false, ""},

	// Lengths.
	{"length", posted("Content-Length: 2\r\n", "{}"), []int{200}, true, ""},
	{"negative length", posted("Content-Length: -1\r\n", ""), []int{400}, false, ""},
	{"signed length", posted("Content-Length: +2\r\n", "{}"), []int{400}, false, ""},
	{"hexadecimal length", posted("Content-Length: 0x2\r\n", "{}"), []int{400}, false, ""},
	{"length with a blank", posted("Content-Length: 1 2\r\n", "{}"), []int{400}, false, ""},
	{"empty length", posted("Content-Length:\r\n", ""), []int{400}, false, ""},
	{"length in other digits", posted("Content-Length: \u0662\r\n", "{}"), []int{400}, false, ""},
	{"list of equal lengths", posted("Content-Length: 2, 2\r\n", "{}"), []int{400}, false, ""},
	{"list of lengths", posted("Content-Length: 2, 3\r\n", "{}"), []int{400}, false, ""},
	{"length twice", posted("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), []int{200}, true, ""},
	{"two lengths", posted("Content-Length: 2\r\nContent-Length: 3\r\n", "{} "), []int{400}, false, ""},
	{"length beyond 64 bits", posted("Content-Length: 18446744073709551618\r\n", "{}"), []int{400}, false, ""},
	{"body of a GET", "GET /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /" + get("/v2"), []int{200, 200}, true, ""},
	{"trailing data", posted("Content-Length: 2\r\n", "{}GARBAGE\r\n\r\n"), []int{200, 400}, false, ""},

	// Codings.
	{"chunked", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"chunked in capitals", posted("transfer-encoding: CHUNKED\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"chunked with a Kelvin sign", posted("Transfer-Encoding: chun\u212aed\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunked and a length", posted("Content-Length: 99\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"+get("/v2")), []int{200}, false, ""},
	{"chunked and length 0", posted("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, false, ""},
	{"chunked and no length", posted("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunked in HTTP/1.0", "POST /v2/repository/index HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}, false, "net/http takes it for a request without a body"},
	{"chunked twice", posted("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"two Transfer-Encodings", posted("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"gzip, chunked", posted("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), []int{501}, false, ""},
	{"chunked, gzip", posted("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"identity", posted("Transfer-Encoding: identity\r\n", ""), []int{501}, false, ""},
	{"empty Transfer-Encoding", posted("Transfer-Encoding:\r\n", ""), []int{400}, false, ""},
	{"quoted chunked", posted("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"chunked with a parameter", posted("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), []int{501}, false, ""},
	{"vertical tabulator before chunked", posted("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},

	// Chunks.
	{"extension", posted("Transfer-Encoding: chunked\r\n", "2;a=\"b;c\" ;d\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"space before an extension", posted("Transfer-Encoding: chunked\r\n", "2 ;a\r\n{}\r\n0\r\n\r\n"), []int{200}, true, "it is to be passed over (RFC 9112, 7.1.1)"},
	{"space before a size", posted("Transfer-Encoding: chunked\r\n", " 2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"space behind a size", posted("Transfer-Encoding: chunked\r\n", "2 \r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with a sign", posted("Transfer-Encoding: chunked\r\n", "+2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with 0x", posted("Transfer-Encoding: chunked\r\n", "0x2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with an underscore", posted("Transfer-Encoding: chunked\r\n", "0_2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"no size", posted("Transfer-Encoding: chunked\r\n", ";a\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size beyond 64 bits", posted("Transfer-Encoding: chunked\r\n", "10000000000000002\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare CR in an extension", posted("Transfer-Encoding: chunked\r\n", "2;a\rb\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"NUL in an extension", posted("Transfer-Encoding: chunked\r\n", "2;a\x00\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare LF behind a size", posted("Transfer-Encoding: chunked\r\n", "2\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare LF behind a chunk", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunk too long", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"trailer", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\r\n\r\n"), []int{200}, true, ""},
	{"Content-Length as a trailer", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"), []int{200}, true, ""},
	{"trailer without a name", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA b\r\n\r\n"), []int{400}, false, ""},
	{"bare CR in a trailer", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\rc\r\n\r\n"), []int{400}, false, ""},
	{"NUL in a trailer", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\x00\r\n\r\n"), []int{400}, false, ""},
	{"folded trailer", posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\r\n c\r\n\r\n"), []int{400}, false, ""},
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n" }

// posted is a request to an endpoint that reads its body.
func posted(headers, body string) string {
	return "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body
}

func TestHostileRequests(t *testing.T) {
	s := startHTTP(t, HTTPConfig{}, nil)
	reference := startReference(t)
	for _, tt := range hostileRequests {
		t.Run(tt.name, func(t *testing.T) {
			got, open := statuses(t, s.addr, tt.text)
			if !slices.Equal(got, tt.want) || open != tt.open {
				t.Errorf("got %d, open %v; want %d, %v", got, open, tt.want, tt.open)
			}
			theirs, taken := statuses(t, reference, tt.text)
			if !taken && refuses(theirs) && !refuses(got) && tt.lenient == "" {
				t.Errorf("got %d, but net/http says %d", got, theirs)
			}
		})
	}
	eventually(t, "all connections have ended", func() bool { return s.Connections() == 0 })
}

// refuses reports whether a server has ended with a refusal of HTTP's, or with
// nothing.
func refuses(statuses []int) bool {
	if len(statuses) == 0 {
		return true
	}
	last := statuses[len(statuses)-1]
	return last == 400 || last == 431 || last == 501 || last == 505
}

// startReference serves by net/http, with a handler that reads bodies.
func startReference(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reference := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadRequest)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- reference.Serve(socket) }()
	t.Cleanup(func() {
		_ = reference.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket.Addr().String()
}

// statuses sends text and, behind it, a last request. It returns the statuses of
// all replies but that to the last request, which tells that the connection was
// open.
func statuses(t *testing.T, addr, text string) (list []int, open bool) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	const last = "GET /v2/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	sent := make(chan struct{}) // closed when the server has taken it, or will not
	go func() {
		defer close(sent)
		_, _ = io.WriteString(raw, text+last)
	}()
	r := bufio.NewReader(raw)
	for {
		resp, err := http.ReadResponse(r, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("replies %d, and then neither another one nor the end", list)
		}
		if err != nil {
			break
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if open = resp.StatusCode == 200 && resp.Close && resp.ContentLength == 0; open {
			break
		}
		list = append(list, resp.StatusCode)
		if resp.Close {
			break
		}
	}
	_ = raw.Close()
	<-sent
	return list, open
}
