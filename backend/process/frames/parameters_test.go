package frames_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
)

// TestRequestParametersBecomeJSON checks the JSON text that request.parameters() returns.
func TestRequestParametersBecomeJSON(t *testing.T) {
	one := func(p infer.Parameter) []infer.Parameter {
		p.Name = "k"
		return []infer.Parameter{p}
	}
	for _, test := range []struct {
		parameters []infer.Parameter
		want       string
	}{
		{nil, ""},
		{one(infer.Parameter{Kind: infer.StringParameter, String: "text"}), `{"k":"text"}`},
		{one(infer.Parameter{Kind: infer.StringParameter, String: "a\"b\\c\n"}), `{"k":"a\"b\\c\n"}`},
		{one(infer.Parameter{Kind: infer.StringParameter, String: "ü"}), `{"k":"ü"}`},
		{one(infer.Parameter{Kind: infer.IntParameter, Int: math.MinInt64}), `{"k":-9223372036854775808}`},
		{one(infer.Parameter{Kind: infer.BoolParameter, Bool: true}), `{"k":true}`},
		{one(infer.Parameter{Kind: infer.DoubleParameter, Double: 2}), `{"k":2.0}`},
		{one(infer.Parameter{Kind: infer.DoubleParameter, Double: -0.5}), `{"k":-0.5}`},
		{one(infer.Parameter{Kind: infer.DoubleParameter, Double: 1e300}), `{"k":1e+300}`},
		{one(infer.Parameter{Kind: infer.DoubleParameter, Double: math.NaN()}), `{"k":NaN}`},
		{one(infer.Parameter{Kind: infer.DoubleParameter, Double: math.Inf(-1)}), `{"k":-Infinity}`},
		{[]infer.Parameter{
			{Name: "a", Kind: infer.IntParameter, Int: 1}, {Name: "b\t", Kind: infer.BoolParameter},
		}, `{"a":1,"b\t":false}`},
	} {
		if got := string(infer.AppendParameters(nil, test.parameters)); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestResponseParametersAreParsed(t *testing.T) {
	got, failure, _ := frames.ParseParameters([]byte(`{"s":"ü","i":-5,"b":true,"i":6,"d":1.5,"d":2.0,"d":1e3}`), nil)
	want := []infer.Parameter{
		{Name: "s", Kind: infer.StringParameter, String: "ü"}, {Name: "i", Kind: infer.IntParameter, Int: -5},
		{Name: "b", Kind: infer.BoolParameter, Bool: true}, {Name: "i", Kind: infer.IntParameter, Int: 6},
		{Name: "d", Kind: infer.DoubleParameter, Double: 1.5}, {Name: "d", Kind: infer.DoubleParameter, Double: 2}, {Name: "d", Kind: infer.DoubleParameter, Double: 1000},
	}
	if failure != nil || len(got) != len(want) {
		t.Fatalf("got %+v, error %v, want %+v", got, failure, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("parameter %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
	for _, text := range []string{
		"", "[]", "5", "null", `{"a":1`, `{"a":}`, `{"a":1e999}`, `{"a":1.}`, `{"a":null}`, `{"a":[1]}`, `{"a":{}}`,
		`{"a":99999999999999999999}`, `{1:2}`, strings.Repeat("[", 100_000),
	} {
		if _, failure, _ := frames.ParseParameters([]byte(text), nil); failure == nil {
			t.Errorf("%.20s: got no error", text)
		}
	}
}

// FuzzParametersOfResponses checks that accepted parameters become valid JSON.
func FuzzParametersOfResponses(f *testing.F) {
	f.Add([]byte(`{"s":"x","i":-5,"b":true}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, failure, _ := frames.ParseParameters(text, nil)
		if failure != nil {
			return
		}
		if again := infer.AppendParameters(nil, list); len(again) > 0 && !json.Valid(again) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
