package rest_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/rest"
)

// TestReadInstancesErrorsNameTheValue checks that errors name the actual and the expected value.
func TestReadInstancesErrorsNameTheValue(t *testing.T) {
	const body = `want {"count":<number>,"group":<name>}, of which the group may be absent`
	const number = "want a whole number from 1 to 1024"
	const name = "want the name of an instance group"
	long := strings.Repeat("ü", 40)
	for text, want := range map[string]string{
		`{"count":1}`:                         "",
		` { "group" : "g", "count" : 1024 } `: "",
		``:                                    "the body is empty, " + body,
		`{"count":1`:                          "the body is not JSON: Missing a comma or } after an object member. at 10; " + body,
		`{"count":1}}`:                        "the body is not JSON: The document root must not be followed by other values. at 11; " + body,
		`count=1`:                             "the body is not JSON: Invalid value. at 0; " + body,
		strings.Repeat("[", 1<<20):            "the body is not JSON: ",
		`[1]`:                                 "the body is [1], " + body,
		`null`:                                "the body is null, " + body,
		`{}`:                                  "'count' is missing, " + number,
		`{"group":"g"}`:                       "'count' is missing, " + number,
		`{"count":0}`:                         "'count' is 0, " + number,
		`{"count":-1}`:                        "'count' is -1, " + number,
		`{"count":1025}`:                      "'count' is 1025, " + number,
		`{"count":4294967297}`:                "'count' is 4294967297, " + number,
		`{"count":18446744073709551617}`:      "'count' is 18446744073709551617, " + number,
		`{"count":1` + strings.Repeat("0", 80) + `}`: "'count' is 1" + strings.Repeat("0", 63) + "…, " + number,
		`{"count":2.5}`:                       "'count' is 2.5, " + number,
		`{"count":2.0}`:                       "'count' is 2.0, " + number,
		`{"count":1e1}`:                       "'count' is 1e1, " + number,
		`{"count":"2"}`:                       `'count' is "2", ` + number,
		`{"count":true}`:                      "'count' is true, " + number,
		`{"count":null}`:                      "'count' is null, " + number,
		`{"count":[2]}`:                       "'count' is [2], " + number,
		`{"count":1,"count":2}`:               "'count' appears twice, want it once",
		`{"count":1,"group":1}`:               "'group' is 1, " + name,
		`{"count":1,"group":null}`:            "'group' is null, " + name,
		`{"count":1,"group":""}`:              `'group' is "", ` + name,
		`{"count":1,"group":"g","group":"h"}`: "'group' appears twice, want it once",
		`{"count":1,"groups":"g"}`:            "'groups' is not known, want 'count' and 'group'",
		`{"Count":1}`:                         "'Count' is not known, want 'count' and 'group'",
		`{"` + long + `":1}`:                  "'" + long[:64] + "…' is not known, want 'count' and 'group'",
		`{"a` + long + `":1}`:                 "'a" + long[:62] + "…' is not known, want 'count' and 'group'",
	} {
		group, count, err := rest.ReadInstances(nil, "m", []byte(text))
		if want == "" {
			if err != nil || count < 1 || group != "" && group != "g" {
				t.Errorf("%s: got %d of %q, %v", text, count, group, err)
			}
			continue
		}
		want = "instances of model 'm': " + want
		if err == nil || infer.AsError(err).Code != infer.InvalidArg || !strings.HasPrefix(infer.AsError(err).Message, want) ||
			!strings.HasSuffix(want, ": ") && infer.AsError(err).Message != want {
			t.Errorf("%.80s: got %v, want %s", text, err, want)
		}
	}
}
