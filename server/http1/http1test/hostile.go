// Package http1test has hostile requests for the tests of all readers of HTTP/1.x.
package http1test

import "strings"

// Hostile are malformed and unusual requests, with the statuses of all replies. The last reply ends
// the connection unless it is open. The tests also send each to net/http: requests that it rejects
// are rejected here, but for those with a reason in Lenient.
var Hostile = []struct {
	Name, Text string
	Want       []int
	Open       bool
	Lenient    string
}{
	// Request lines.
	{"plain", Get("/v2"), []int{200}, true, ""},
	{"lower case method", "get /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{405}, true, ""},
	{"unknown method", "FETCH /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{405}, true, ""},
	{"method with a slash", "GE/T /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"method with a NUL", "G\x00T /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"method beyond ASCII", "GÉT /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"no method", " /v2 HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}, false, ""},
	{"CONNECT", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n" + Get("/v2"), []int{501}, false, ""},
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
	{"blank lines before", "\r\n\r\n" + Get("/v2"), []int{200}, true, "at least one is to be passed over (RFC 9112, 2.2)"},

	// Targets.
	{"query", Get("/v2?a=/v2/x"), []int{200}, true, ""},
	{"fragment", Get("/v2#a"), []int{404}, true, ""},
	{"percent", Get("/v2/models/id_int32%2Fready"), []int{404}, true, ""},
	{"percent without digits", Get("/v2/models/%zz"), []int{404}, true, "such a name may be that of a model"},
	{"percent NUL", Get("/v2/models/%00"), []int{404}, true, ""},
	{"dots", Get("/x/../v2"), []int{404}, true, ""},
	{"two slashes", Get("//v2"), []int{404}, true, ""},
	{"backslash", Get("/v2\\x"), []int{404}, true, ""},
	{"NUL in the target", Get("/v2\x00"), []int{400}, false, ""},
	{"DEL in the target", Get("/v2\x7f"), []int{400}, false, ""},
	{"absolute form", Get("http://h/v2"), []int{200}, true, ""},
	{"absolute form, capitals", Get("HTTP://h:80/v2"), []int{200}, true, ""},
	{"absolute form without path", Get("http://h"), []int{404}, true, ""},
	{"absolute form, path in the query", Get("http://h?/v2"), []int{404}, true, ""},
	{"absolute form, path in the fragment", Get("http://h#/v2"), []int{400}, false, ""},
	{"absolute form with a fragment", Get("http://h/v2#a"), []int{400}, false, ""},
	{"absolute form, no scheme", Get("://h/v2"), []int{400}, false, ""},
	{"absolute form, odd scheme", Get("x?://h/v2"), []int{400}, false, ""},
	{"absolute form, other scheme", Get("ftp://h/v2"), []int{400}, false, ""},
	{"absolute form, scheme with a Kelvin sign", Get("\u212attp://h/v2"), []int{400}, false, ""},
	{"absolute form, no host", Get("http:///v2"), []int{400}, false, ""},
	{"absolute form with a user", Get("http://u@h/v2"), []int{400}, false, ""},
	{"authority form", Get("h:80"), []int{400}, false, ""},
	{"relative", Get("v2"), []int{400}, false, ""},
	{"asterisk", Get("*"), []int{400}, false, ""},
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
	{"length", Posted("Content-Length: 2\r\n", "{}"), []int{200}, true, ""},
	{"negative length", Posted("Content-Length: -1\r\n", ""), []int{400}, false, ""},
	{"signed length", Posted("Content-Length: +2\r\n", "{}"), []int{400}, false, ""},
	{"hexadecimal length", Posted("Content-Length: 0x2\r\n", "{}"), []int{400}, false, ""},
	{"length with a blank", Posted("Content-Length: 1 2\r\n", "{}"), []int{400}, false, ""},
	{"empty length", Posted("Content-Length:\r\n", ""), []int{400}, false, ""},
	{"length in other digits", Posted("Content-Length: \u0662\r\n", "{}"), []int{400}, false, ""},
	{"list of equal lengths", Posted("Content-Length: 2, 2\r\n", "{}"), []int{400}, false, ""},
	{"list of lengths", Posted("Content-Length: 2, 3\r\n", "{}"), []int{400}, false, ""},
	{"length twice", Posted("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), []int{200}, true, ""},
	{"two lengths", Posted("Content-Length: 2\r\nContent-Length: 3\r\n", "{} "), []int{400}, false, ""},
	{"length beyond 64 bits", Posted("Content-Length: 18446744073709551618\r\n", "{}"), []int{400}, false, ""},
	{"body of a GET", "GET /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /" + Get("/v2"), []int{200, 200}, true, ""},
	{"trailing data", Posted("Content-Length: 2\r\n", "{}GARBAGE\r\n\r\n"), []int{200, 400}, false, ""},

	// Codings.
	{"chunked", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"chunked in capitals", Posted("transfer-encoding: CHUNKED\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"chunked with a Kelvin sign", Posted("Transfer-Encoding: chun\u212aed\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunked and a length", Posted("Content-Length: 99\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"+Get("/v2")), []int{200}, false, ""},
	{"chunked and length 0", Posted("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{200}, false, ""},
	{"chunked and no length", Posted("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", "2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunked in HTTP/1.0", "POST /v2/repository/index HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}, false, "net/http takes it for a request without a body"},
	{"chunked twice", Posted("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"two Transfer-Encodings", Posted("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"gzip, chunked", Posted("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), []int{501}, false, ""},
	{"chunked, gzip", Posted("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"identity", Posted("Transfer-Encoding: identity\r\n", ""), []int{501}, false, ""},
	{"empty Transfer-Encoding", Posted("Transfer-Encoding:\r\n", ""), []int{400}, false, ""},
	{"quoted chunked", Posted("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), []int{400}, false, ""},
	{"chunked with a parameter", Posted("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), []int{501}, false, ""},
	{"vertical tabulator before chunked", Posted("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), []int{400}, false, ""},

	// Chunks.
	{"extension", Posted("Transfer-Encoding: chunked\r\n", "2;a=\"b;c\" ;d\r\n{}\r\n0\r\n\r\n"), []int{200}, true, ""},
	{"space before an extension", Posted("Transfer-Encoding: chunked\r\n", "2 ;a\r\n{}\r\n0\r\n\r\n"), []int{200}, true, "it is to be passed over (RFC 9112, 7.1.1)"},
	{"space before a size", Posted("Transfer-Encoding: chunked\r\n", " 2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"space behind a size", Posted("Transfer-Encoding: chunked\r\n", "2 \r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with a sign", Posted("Transfer-Encoding: chunked\r\n", "+2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with 0x", Posted("Transfer-Encoding: chunked\r\n", "0x2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size with an underscore", Posted("Transfer-Encoding: chunked\r\n", "0_2\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"no size", Posted("Transfer-Encoding: chunked\r\n", ";a\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"size beyond 64 bits", Posted("Transfer-Encoding: chunked\r\n", "10000000000000002\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare CR in an extension", Posted("Transfer-Encoding: chunked\r\n", "2;a\rb\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"NUL in an extension", Posted("Transfer-Encoding: chunked\r\n", "2;a\x00\r\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare LF behind a size", Posted("Transfer-Encoding: chunked\r\n", "2\n{}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"bare LF behind a chunk", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\n0\r\n\r\n"), []int{400}, false, ""},
	{"chunk too long", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}}\r\n0\r\n\r\n"), []int{400}, false, ""},
	{"trailer", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\r\n\r\n"), []int{200}, true, ""},
	{"Content-Length as a trailer", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"), []int{200}, true, ""},
	{"trailer without a name", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA b\r\n\r\n"), []int{400}, false, ""},
	{"bare CR in a trailer", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\rc\r\n\r\n"), []int{400}, false, ""},
	{"NUL in a trailer", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\x00\r\n\r\n"), []int{400}, false, ""},
	{"folded trailer", Posted("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\nA: b\r\n c\r\n\r\n"), []int{400}, false, ""},
}

// Get is a request for a target.
func Get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n" }

// Posted is a request to an endpoint that reads its body.
func Posted(headers, body string) string {
	return "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body
}
