package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/rest/generate"
)

func TestShapeTakesElementsIntoItsLastVariableDimension(t *testing.T) {
	for _, tt := range []struct {
		batched bool
		dims    []int64
		n       int64
		want    string
	}{
		{false, []int64{1}, 1, "[1]"}, {false, []int64{1}, 2, "refused"}, {false, []int64{1}, 0, "refused"},
		{true, []int64{1}, 3, "[3 1]"}, {true, []int64{-1}, 3, "[1 3]"}, {true, []int64{2, -1, 3}, 12, "[1 2 2 3]"},
		{false, []int64{-1, 2}, 0, "[0 2]"}, {true, []int64{-1, 2}, 0, "[1 0 2]"}, {false, []int64{2, 2}, 4, "[2 2]"},
		{false, []int64{2, 2}, 8, "refused"}, {false, []int64{3}, 2, "refused"}, {false, nil, 1, "[]"}, {true, nil, 4, "[4]"},
		{false, []int64{0}, 0, "refused"}, {false, []int64{0}, 1, "refused"}, {true, []int64{0, 2}, 0, "refused"},
	} {
		got := "refused"
		if shape, ok := generate.Shape(tt.batched, tt.dims, tt.n); ok && !slices.Contains(shape, -1) {
			if n, _ := infer.Elements(shape); n != tt.n {
				t.Errorf("%v of %d elements: %v has %d", tt.dims, tt.n, shape, n)
			}
			got = fmt.Sprint(shape)
		}
		if got != tt.want {
			t.Errorf("batched %v, %v of %d elements: got %s, want %s", tt.batched, tt.dims, tt.n, got, tt.want)
		}
	}
}

// TestLaterObjectGivesParametersTheirValue checks which of several equal names counts: in one
// object the first, as in Triton's parser, and in two objects that of the later one, as models see
// it.
func TestLaterObjectGivesParametersTheirValue(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"p%d":%d`, i, i)
	}
	for text, want := range map[string]string{
		`{"p":1,"p":2}`:                                                        "p=1",
		`{"p":1,"parameters":{"p":2}}`:                                         "p=2",
		`{"parameters":{"p":2,"p":3},"p":1}`:                                   "p=1",
		`{` + strings.Join(many, ",") + `,"parameters":{"p99":-1}}`:            "p99=-1",
		`{"parameters":{` + strings.Join(many, ",") + `},"p3":-3}`:             "p3=-3",
		`{` + strings.Join(many, ",") + `,"p99":1,"parameters":{"q":0,"q":1}}`: "p99=99",
	} {
		q := generate.NewRequest(false)
		if err := generate.Decode(t, q, text); err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(want, "=")
		var got []string
		for _, p := range q.Parameters {
			if p.Name == name {
				got = append(got, fmt.Sprint(p.Int))
			}
		}
		if !slices.Equal(got, []string{value}) {
			t.Errorf("%.60s: %s is %v, want %s once", text, name, got, value)
		}
	}
}

func TestInputCalledParametersIsRefused(t *testing.T) {
	q := generate.NewRequest(false, &kserve.ModelInput{Name: "parameters", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{1}})
	err := generate.Decode(t, q, `{"parameters":1}`)
	if want := "Keyword 'parameters' for nested schema also given as input tensor name"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFirstOfClashingMembersIsWritten(t *testing.T) {
	bytes := infer.Tensor{Name: "id", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte("\x01\x00\x00\x00o")}
	text := infer.Tensor{Name: "text", DataType: infer.Bytes, Shape: []int64{2}, Data: []byte("\x01\x00\x00\x00a\x00\x00\x00\x00")}
	number := infer.Tensor{Name: "a", DataType: infer.Uint8, Shape: []int64{1, 1}, Data: []byte{7}}
	r := &infer.Response{Model: "m", Version: 3, ID: "r", Outputs: []infer.Tensor{text, bytes, number},
		Parameters: []infer.Parameter{{Name: "model_name", String: "other"}, {Name: "a", Kind: infer.BoolParameter, Bool: true}, {Name: "z", Kind: infer.DoubleParameter, Double: 0.5}}}
	q := generate.NewRequest(false)
	got, err := q.Append([]byte("x"), r)
	if want := `x{"a":true,"id":"r","model_name":"m","model_version":"3","text":["a",""],"z":0.5}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	r = &infer.Response{Model: "m", Version: 3, Outputs: []infer.Tensor{bytes, number}}
	if got, err = q.Append(nil, r); err != nil || string(got) != `{"a":7,"id":"o","model_name":"m","model_version":"3"}` {
		t.Errorf("got %s, %v", got, err)
	}
}
