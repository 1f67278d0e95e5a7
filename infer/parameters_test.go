package infer_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestParametersOfAllKinds checks that parameters of each kind are parsed in order, and parsed
// again after encoding.
func TestParametersOfAllKinds(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":"x","b":true,"c":1.0,"d":-9223372036854775808,"e":1e400}`: "",
		`{"a":NaN,"b":-Infinity,"c":"NaN \" Infinity","d":Infinity}`:          `[{a 4  0 false NaN} {b 4  0 false -Inf} {c 1 NaN " Infinity 0 false 0} {d 4  0 false +Inf}]`,
		`{"a":"\u0000double:x","b":"\u0000double:5","c":"\u0000double:NaN"}`:  "[{a 1 \x00double:x 0 false 0} {b 1 \x00double:5 0 false 0} {c 1 \x00double:NaN 0 false 0}]",
		`{"a":NaN,"b":"\u0000double:Infinity","c":"null","d":-Infinity}`:      "[{a 4  0 false NaN} {b 1 \x00double:Infinity 0 false 0} {c 1 null 0 false 0} {d 4  0 false -Inf}]",
		`{"a":NaN,"b":null}`: "", `{"a":-NaN}`: "", `{"a":1NaN}`: "", `{"a":NaNNaN}`: "", `{"a":NaNull}`: "", `{NaN:1}`: "", `{"a":[NaN]}`: "", `{"a":NaN`: "",
		`{"a":[1]}`: "", `[1]`: "", `{`: "", `{"a":null}`: "",
	} {
		got, err := infer.ParseParameters([]byte(text))
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, error %v, want %s", text, got, err, want)
		}
		if err == nil {
			again, err := infer.ParseParameters(infer.AppendParameters(nil, got))
			if err != nil || fmt.Sprint(again) != want {
				t.Errorf("%s written again: got %v, error %v", text, again, err)
			}
		}
	}
}

// checkQuoted compares QuoteJSON's output for s with encoding/json, and ParametersSize with the
// encoded size.
func checkQuoted(t *testing.T, s string) {
	t.Helper()
	var quoted strings.Builder
	infer.QuoteJSON(s, func(piece string) { quoted.WriteString(piece) })
	if want, _ := json.Marshal(s); quoted.String() != string(want) {
		t.Errorf("%q: got %s, want %s", s, quoted.String(), want)
	}
	list := []infer.Parameter{
		{Name: s, Kind: infer.StringParameter, String: s}, {Name: "i", Kind: infer.IntParameter, Int: math.MinInt64}, {Name: "b", Kind: infer.BoolParameter},
		{Name: "d", Kind: infer.DoubleParameter, Double: -math.MaxFloat64}, {Name: "e", Kind: infer.DoubleParameter, Double: -1e20}, {Name: "n", Kind: infer.DoubleParameter, Double: math.NaN()}, {Name: s},
	}
	for n := range len(list) + 1 {
		if got, want := infer.ParametersSize(list[:n]), len(infer.AppendParameters(nil, list[:n])); got != want {
			t.Errorf("%q: got a size of %d for %d parameters, want %d", s, got, n, want)
		}
	}
}

// TestStringsAreQuotedAsJSON compares each character below U+3000, and random combinations of
// special characters, with encoding/json.
func TestStringsAreQuotedAsJSON(t *testing.T) {
	for r := range rune(0x3000) {
		checkQuoted(t, string(r))
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "plain", "\x00", "\x1f", "\x7f", "\"", "\\", "<", ">", "&", "\u2028", "\u2029", "\xff", "\xe2\x80", "\xed\xa0\x80", "ü", "\U0001f600", "\uFFFD", "\n", "\b"}
	for range 5000 {
		var s strings.Builder
		for range random.IntN(8) {
			s.WriteString(pieces[random.IntN(len(pieces))])
		}
		checkQuoted(t, s.String())
	}
	// HTML characters alone need no escapes.
	if got, want := string(infer.AppendParameters(nil, []infer.Parameter{{Name: "<", Kind: infer.StringParameter, String: "a&b"}})), `{"<":"a&b"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzParameters checks that parsed parameters parse to the same values after encoding. It also
// encodes and parses arbitrary parameters, with and without doubles that JSON cannot express.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":"x","c":true,"d":2.5}`, `{"a":NaN,"b":"\u0000double:"}`, `{"":-Infinity}`, `{"\ud800":"\\"}`, `{"a":NaN,"b":null}`, "\x00double:5", "NaN", `"NaN`, `\`,
	} {
		f.Add([]byte(seed), seed, 2.5)
		f.Add([]byte(seed), seed, math.Inf(-1))
	}
	f.Fuzz(func(t *testing.T, text []byte, s string, number float64) {
		checkQuoted(t, s)
		if first, err := infer.ParseParameters(text); err == nil && len(first) > 0 {
			again, err := infer.ParseParameters(infer.AppendParameters(nil, first))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
				t.Errorf("%q: got %v, then %v, error %v", text, first, again, err)
			}
		}
		s = string([]rune(s)) // JSON is always UTF-8
		for _, others := range [][]infer.Parameter{
			nil, {{Name: "n", Kind: infer.DoubleParameter, Double: math.NaN()}}, {{Name: s, Kind: infer.DoubleParameter, Double: math.Inf(1)}, {Name: s, Kind: infer.BoolParameter, Bool: true}},
		} {
			want := append(append([]infer.Parameter{{Name: s, Kind: infer.StringParameter, String: s}}, others...),
				infer.Parameter{Name: s, Kind: infer.DoubleParameter, Double: number}, infer.Parameter{Name: "i", Kind: infer.IntParameter, Int: int64(len(s))},
				infer.Parameter{Name: "s", Kind: infer.StringParameter, String: s})
			got, err := infer.ParseParameters(infer.AppendParameters(nil, want))
			if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
				t.Errorf("got %#v, error %v, want %#v", got, err, want)
			}
		}
	})
}
