package inference

import (
	"math"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// HeaderLengthName is the header with the length of the JSON at the start of a body; binary tensors
// follow.
const HeaderLengthName = "Inference-Header-Content-Length"

// Framing determines where the JSON of a body ends. The zero value is the KServe protocol's: a
// header has the length, and bodies may be compressed.
type Framing struct {
	// BinaryType begins the media type of a body with binary tensors, and the length of the JSON
	// ends it, as for SageMaker and Vertex AI. Such bodies are not compressed.
	BinaryType string
	// ReplyHeader makes replies use the header as well.
	ReplyHeader bool
}

// MarkBinary states in the head of a reply that the first n bytes of its body are JSON, and that
// tensors follow.
func (f Framing) MarkBinary(w *http1.Reply, n int) {
	if f.BinaryType != "" && !f.ReplyHeader {
		w.ContentType = f.BinaryType + strconv.Itoa(n)
		return
	}
	w.ContentType, w.Extra = "application/octet-stream", http1.Number{Name: HeaderLengthName, Value: n}
}

// jsonLength returns the announced length of a request's JSON.
func (f Framing) jsonLength(r *http1.Request) (n int64, given bool, err error) {
	text, given, err := f.lengthText(r)
	if !given || err != nil {
		return 0, given, err
	}
	n, ok := stoi(text)
	switch {
	case !ok && f.BinaryType != "":
		err = infer.Errorf(infer.InvalidArg, "Unable to parse inference header size, got: %s", text)
	case !ok:
		err = infer.Errorf(infer.InvalidArg, "Unable to parse %s, got: %s", HeaderLengthName, text)
	case n <= math.MaxInt32 && n >= math.MinInt32:
	case f.BinaryType != "":
		err = infer.Errorf(infer.InvalidArg, "Unable to parse inference header size, value is out of range, got: %s", text)
	default:
		err = errInt32Range(HeaderLengthName, text)
	}
	return n, true, err
}

func (f Framing) lengthText(r *http1.Request) (text string, given bool, err error) {
	if f.BinaryType == "" {
		text, given = r.Header(HeaderLengthName)
		return text, given, nil
	}
	media, _ := r.Header("Content-Type")
	switch at := strings.Index(media, f.BinaryType); {
	case at < 0:
		return "", false, nil
	case at > 0:
		return "", false, infer.Errorf(infer.InvalidArg, "expect MIME type for binary data starts with '%s', got: %s", f.BinaryType, media)
	}
	return media[len(f.BinaryType):], true, nil
}

// errRange rejects a length that exceeds the body, of n bytes.
func (f Framing) errRange(r *http1.Request, n int64) error {
	text, _, _ := f.lengthText(r)
	return infer.Errorf(infer.InvalidArg, "inference header size should be in range (0, %d), got: %s", max(n, 0), text)
}

// stoi reads a number as C's stoi does, which ignores a rest after the digits. A number beyond
// int32 stays beyond int32.
func stoi(text string) (n int64, ok bool) {
	digits := strings.TrimLeft(text, " \t")
	negative := strings.HasPrefix(digits, "-")
	if digits != "" && (digits[0] == '+' || negative) {
		digits = digits[1:]
	}
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		n = min(n*10+int64(digits[end]-'0'), math.MaxInt32+2)
		end++
	}
	if negative {
		n = -n
	}
	return n, end > 0
}

func errInt32Range(name, value string) error {
	return infer.Errorf(infer.InvalidArg, "Unable to parse %s, value is out of range [ %d, %d ], got: %s",
		name, math.MinInt32, math.MaxInt32, value)
}
