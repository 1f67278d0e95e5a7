package body_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// TestMalformedJSONErrorSuggestsARemedy checks that an error begins with Triton's text, followed by
// a remedy if the body shows which mistake was made.
func TestMalformedJSONErrorSuggestsARemedy(t *testing.T) {
	for _, c := range []struct{ text, triton, remedy string }{
		{"\xff\xd8\xff\xe0JFIF", "Invalid value. at 0", "; the body is not JSON: a file goes to a model with one BYTES input"},
		{"\x89PNG\r\n", "Invalid value. at 0", "; the body is not JSON"},
		{"inputs=1", "Invalid value. at 0", `; a request is a JSON object, such as {"inputs": [`},
		{"{'inputs': []}", "Missing a name for object member. at 1", "; JSON wants double quotes around names and texts"},
		{`{"inputs": ['a']}`, "Invalid value. at 12", "; JSON wants double quotes"},
		{`{"data": [1, True]}`, "Invalid value. at 13", "; JSON knows true, false and null, and no True"},
		{`{"a": None}`, "Invalid value. at 7", "; JSON knows true, false and null, and no None"},
		{"{", "Missing a name for object member. at 1", ""},
		{" x", "Invalid value. at 1", ""},
		{`{"T":"a",}`, "Missing a name for object member. at 9", ""},
		{`{"it's": 1`, "Missing a comma or } after an object member. at 10", ""},
	} {
		_, err := body.Parse(nil, new(jsontext.Scanner), []byte(c.text))
		e := infer.AsError(err)
		if e == nil || e.Code != infer.Internal {
			t.Errorf("%q: got error %v, want an internal one", c.text, err)
			continue
		}
		rest, found := strings.CutPrefix(e.Message, "failed to parse the request JSON buffer: "+c.triton)
		if !found || !strings.HasPrefix(rest, c.remedy) || c.remedy == "" && rest != "" {
			t.Errorf("%q: got %q, want Triton's %q and the remedy %q", c.text, e.Message, c.triton, c.remedy)
		}
	}
}
