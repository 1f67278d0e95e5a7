package infer

import (
	"fmt"
	"testing"
)

// TestParametersOfAllKinds reads what was written, in its order.
func TestParametersOfAllKinds(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":"x","b":true,"c":1.0,"d":-9223372036854775808,"e":1e400}`: "",
		`{"a":NaN,"b":-Infinity,"c":"NaN \" Infinity","d":Infinity}`:          `[{a 4  0 false NaN} {b 4  0 false -Inf} {c 1 NaN " Infinity 0 false 0} {d 4  0 false +Inf}]`,
		`{"a":[1]}`: "", `[1]`: "", `{`: "", `{"a":null}`: "",
	} {
		got, err := ParseParameters([]byte(text))
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, error %v, want %s", text, got, err, want)
		}
		if err == nil {
			again, err := ParseParameters(AppendParameters(nil, got))
			if err != nil || fmt.Sprint(again) != want {
				t.Errorf("%s written again: got %v, error %v", text, again, err)
			}
		}
	}
}

// FuzzParameters reads arbitrary texts; what it can read it reads again from what it writes.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":"x","c":true,"d":2.5}`, `{"a":NaN,"b":"\u0000double:"}`, `{"":-Infinity}`, `{"\ud800":"\\"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := ParseParameters(text)
		if err != nil || len(first) == 0 {
			return
		}
		again, err := ParseParameters(AppendParameters(nil, first))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("%q: got %v, then %v, error %v", text, first, again, err)
		}
	})
}
