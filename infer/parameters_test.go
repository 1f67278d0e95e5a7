package infer

import (
	"fmt"
	"math"
	"testing"
)

// TestParametersOfAllKinds reads what was written, in its order.
func TestParametersOfAllKinds(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":"x","b":true,"c":1.0,"d":-9223372036854775808,"e":1e400}`: "",
		`{"a":NaN,"b":-Infinity,"c":"NaN \" Infinity","d":Infinity}`:          `[{a 4  0 false NaN} {b 4  0 false -Inf} {c 1 NaN " Infinity 0 false 0} {d 4  0 false +Inf}]`,
		`{"a":"\u0000double:x","b":"\u0000double:5","c":"\u0000double:NaN"}`:  "[{a 1 \x00double:x 0 false 0} {b 1 \x00double:5 0 false 0} {c 1 \x00double:NaN 0 false 0}]",
		`{"a":NaN,"b":"\u0000double:Infinity","c":"null","d":-Infinity}`:      "[{a 4  0 false NaN} {b 1 \x00double:Infinity 0 false 0} {c 1 null 0 false 0} {d 4  0 false -Inf}]",
		`{"a":NaN,"b":null}`: "", `{"a":-NaN}`: "", `{"a":1NaN}`: "", `{"a":NaNNaN}`: "", `{"a":NaNull}`: "", `{NaN:1}`: "", `{"a":[NaN]}`: "", `{"a":NaN`: "",
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

// FuzzParameters reads arbitrary texts; what it can read it reads again from what it writes. And it reads arbitrary parameters as they were
// written, with a double that JSON does not know among them and without.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":"x","c":true,"d":2.5}`, `{"a":NaN,"b":"\u0000double:"}`, `{"":-Infinity}`, `{"\ud800":"\\"}`, `{"a":NaN,"b":null}`, "\x00double:5", "NaN", `"NaN`, `\`,
	} {
		f.Add([]byte(seed), seed, 2.5)
		f.Add([]byte(seed), seed, math.Inf(-1))
	}
	f.Fuzz(func(t *testing.T, text []byte, s string, number float64) {
		if first, err := ParseParameters(text); err == nil && len(first) > 0 {
			again, err := ParseParameters(AppendParameters(nil, first))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
				t.Errorf("%q: got %v, then %v, error %v", text, first, again, err)
			}
		}
		s = string([]rune(s)) // JSON has UTF-8 alone
		for _, others := range [][]Parameter{
			nil, {{Name: "n", Kind: DoubleParameter, Double: math.NaN()}}, {{Name: s, Kind: DoubleParameter, Double: math.Inf(1)}, {Name: s, Kind: BoolParameter, Bool: true}},
		} {
			want := append(append([]Parameter{{Name: s, Kind: StringParameter, String: s}}, others...),
				Parameter{Name: s, Kind: DoubleParameter, Double: number}, Parameter{Name: "i", Kind: IntParameter, Int: int64(len(s))},
				Parameter{Name: "s", Kind: StringParameter, String: s})
			got, err := ParseParameters(AppendParameters(nil, want))
			if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
				t.Errorf("got %#v, error %v, want %#v", got, err, want)
			}
		}
	})
}
