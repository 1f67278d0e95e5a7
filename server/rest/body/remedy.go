package body

import (
	"bytes"
	"regexp"
)

var (
	// singleQuoted matches a name or a text in the quotes of Python and of shells.
	singleQuoted = regexp.MustCompile(`[{\[,:]\s*'`)
	// literals matches values of Python and JavaScript.
	literals = regexp.MustCompile(`[\[,:]\s*(None|True|False|undefined)\b`)
)

// maxLooked bounds how much of a text is searched for mistakes, in bytes.
const maxLooked = 4 << 10

// remedy suggests a correction of a text that is not JSON, to be appended to the error, or returns
// "".
func remedy(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) < 2 {
		return ""
	}
	text = text[:min(len(text), maxLooked)]
	switch first := text[0]; {
	case first < ' ' || first >= 0x7F:
		return "; the body is not JSON: a file goes to a model with one BYTES input with its Content-Type (image/*, audio/*, application/octet-stream), " +
			"and to others as a binary tensor, with the header Inference-Header-Content-Length"
	case first != '{':
		return `; a request is a JSON object, such as {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}`
	case singleQuoted.Match(text):
		return "; JSON wants double quotes around names and texts, and a shell single quotes around the whole"
	}
	if m := literals.FindSubmatch(text); m != nil {
		return "; JSON knows true, false and null, and no " + string(m[1]) // bound: maxLooked
	}
	return ""
}
