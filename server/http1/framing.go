package http1

import (
	"errors"
	"math"
	"net/http"
	"strings"
)

// framing has the header values that determine the end of a request's body.
type framing struct {
	length   int64 // the Content-Length, if measured
	measured bool
	codings  int // Transfer-Encodings in the headers
	chunked  bool
	hosts    int
}

// parseFraming reads the headers that determine where the body ends and whether the connection
// does. A proxy in front must see the same end, so it rejects anything that two readers could
// understand differently.
func (r *Request) parseFraming() error {
	var f framing
	r.Length, r.close = 0, r.minor == 0
	expects := false
	for i := range r.Fields {
		field := &r.Fields[i]
		var err error
		switch len(field.Name) {
		case len("Host"):
			if equalFold(field.Name, "Host") {
				if f.hosts++; f.hosts > 1 || !isHost(field.Value) {
					err = badHead("Host %.64q is not a valid host, or not the only one", field.Value)
				}
			}
		case len("Content-Length"):
			if equalFold(field.Name, "Content-Length") {
				err = f.addLength(field.Value)
			}
		case len("Transfer-Encoding"):
			if equalFold(field.Name, "Transfer-Encoding") {
				err = f.addCodings(field.Value)
			}
		case len("Connection"):
			if equalFold(field.Name, "Connection") {
				r.parseConnection(field.Value)
			}
		case len("Expect"):
			if equalFold(field.Name, "Expect") {
				expects = expects || equalFold(field.Value, "100-continue")
			}
		}
		if err != nil {
			return err
		}
	}
	r.body.expects = expects && r.minor == 1
	if f.hosts == 0 && r.minor == 1 {
		return badHead("request of HTTP/1.1 has no Host")
	}
	if f.codings == 0 {
		r.Length = f.length
		return nil
	}
	// A length beside it is ignored, and the connection ends with the reply (RFC 9112, 6.1).
	r.Length, r.close = -1, r.close || f.measured
	switch {
	case r.minor == 0:
		return badHead("request of HTTP/1.0 has a Transfer-Encoding")
	case !f.chunked:
		return badHead("Transfer-Encoding does not end with chunked")
	}
	return nil
}

// addLength reads a Content-Length. A request may repeat it with the same value.
func (f *framing) addLength(text string) error {
	n, err := parseLength(text)
	if err != nil || f.measured && n != f.length {
		return badHead("Content-Length %.64q is not a valid length, or not the only one", text)
	}
	f.length, f.measured = n, true
	return nil
}

// addCodings reads a Transfer-Encoding: a list in which chunked, the only known coding, comes once
// and last.
func (f *framing) addCodings(list string) error {
	for coding := range strings.SplitSeq(list, ",") {
		coding = strings.Trim(coding, " \t")
		f.codings++
		switch name, _, _ := strings.Cut(coding, ";"); {
		case f.chunked:
			return badHead("Transfer-Encoding %.64q is not the only one, and chunked not the last one", coding)
		case !isToken(strings.TrimRight(name, " \t")):
			return badHead("Transfer-Encoding %.64q is not a list of codings", list)
		case !equalFold(coding, "chunked"):
			return &headError{http.StatusNotImplemented, "the Transfer-Encoding '" + coding + "' is not served"}
		}
		f.chunked = true
	}
	return nil
}

// parseConnection reads a Connection header, a list of words.
func (r *Request) parseConnection(list string) {
	for word := range strings.SplitSeq(list, ",") {
		switch word = strings.Trim(word, " \t"); {
		case equalFold(word, "close"):
			r.close = true
		case r.minor == 0 && equalFold(word, "keep-alive"):
			r.close = false
		}
	}
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// parseLength reads a Content-Length, which has only digits. A value beyond int64 becomes the
// largest one, which no endpoint accepts.
func parseLength(text string) (int64, error) {
	if !allDigits(text) {
		return 0, errors.New("not a number")
	}
	n := int64(0)
	for i := range len(text) {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64, nil
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, nil
}
