package infer_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// TestCheckNamesTheField checks that Check rejects requests that cannot be passed to a model, and
// names the field.
func TestCheckNamesTheField(t *testing.T) {
	const bad = "a\xed\xb0\x80" // half of a surrogate pair
	text := func(name, value string) []infer.Parameter {
		return []infer.Parameter{{Name: "x", Kind: infer.IntParameter}, {Name: name, Kind: infer.StringParameter, String: value}}
	}
	for _, test := range []struct {
		request infer.Request
		want    string // in the error; "": no error
	}{
		{infer.Request{}, ""},
		{infer.Request{ID: "grün", Correlation: infer.CorrelationID{Text: "\U0001f600"}, Parameters: text("ключ", "\x00")}, ""},
		{infer.Request{Inputs: []infer.Tensor{{Name: "I", DataType: infer.Bytes, Data: []byte("\xff"), Shape: make([]int64, infer.MaxRank)}}}, ""},
		{infer.Request{ID: bad}, `the request's 'id' is not valid UTF-8: "a\xed\xb0\x80"`},
		{infer.Request{ID: strings.Repeat("x", 1000) + bad}, `xxx"…`},
		{infer.Request{ID: "7", Correlation: infer.CorrelationID{Text: "\xff"}}, `[request id: 7] parameter 'sequence_id' is not valid UTF-8: "\xff"`},
		{infer.Request{Parameters: text("k", bad)}, `[request id: <id_unknown>] parameter 'k' is not valid UTF-8: "a\xed\xb0\x80"`},
		{infer.Request{Parameters: text(bad, "v")}, `the name of parameter "a\xed\xb0\x80" is not valid UTF-8`},
		{infer.Request{Inputs: []infer.Tensor{{Name: "I", Shape: make([]int64, infer.MaxRank+1)}}}, "input 'I' has 65 dimensions, at most 64 are allowed"},
		{infer.Request{Outputs: make([]string, infer.MaxTensors+1)}, "names 65535 outputs, at most 65534 of each are allowed"},
		{infer.Request{Inputs: make([]infer.Tensor, infer.MaxTensors+1)}, "has 65535 inputs"},
		{infer.Request{ID: strings.Repeat("x", infer.MaxText/2), Parameters: text("k", strings.Repeat("x", infer.MaxText/2))}, "have 67108866 bytes, at most 67108864 are allowed"},
	} {
		err := test.request.Check()
		if test.want == "" {
			if err != nil {
				t.Errorf("%.80v: got error %v, want none", test.request, err)
			}
			continue
		}
		var own *infer.Error
		if !errors.As(err, &own) || own.Code != infer.InvalidArg || !strings.Contains(own.Message, test.want) {
			t.Errorf("got error %.300v, want an invalid argument with %q", err, test.want)
		} else if !utf8.ValidString(own.Message) {
			t.Errorf("the text of the error is not UTF-8: %q", own.Message)
		}
	}
}
