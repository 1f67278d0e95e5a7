package body

import (
	"bytes"
	"regexp"
)

var (
	// singleQuoted is a name or a text in the quotes of Python and of shells.
	singleQuoted = regexp.MustCompile(`[{\[,:]\s*'`)
	// literals are those of Python and JavaScript where a value stands.
	literals = regexp.MustCompile(`[\[,:]\s*(None|True|False|undefined)\b`)
)

// maxLooked bounds how much of a text is searched for mistakes, in bytes.
const maxLooked = 4 << 10

// remedy says what may be done about a text that is no JSON, behind the text of the error; "" if
// nothing shows what is wrong.
func remedy(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) < 2 {
		return ""
	}
	text = text[:min(len(text), maxLooked)]
	switch first := text[0]; {
	case first < ' ' || first >= 0x7F:
		return "; the body is no JSON: a file goes to a model with one BYTES input with its Content-Type (image/*, audio/*, application/octet-stream), " +
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
