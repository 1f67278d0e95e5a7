package generate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// request returns an empty request for a model with these inputs.
func request(batched bool, inputs ...*kserve.ModelInput) *Request {
	account := budget.New(budget.Config{})
	q := &Request{codec: NewCodec(&body.Gatherer{Account: account, MaxBytes: 1 << 20}, nil, nil), inputs: inputs, batched: batched}
	q.begin(budget.Charge{Account: account})
	return q
}

func decode(t *testing.T, q *Request, text string) error {
	t.Helper()
	doc, err := new(jsontext.Scanner).Scan(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return q.read(doc.Root())
}

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
		if shape, ok := Shape(tt.batched, tt.dims, tt.n); ok && !slices.Contains(shape, -1) {
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

// TestLaterObjectGivesParametersTheirValue checks duplicate names: in one object the first counts,
// as in Triton's parser; of two objects the later one, as models see it.
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
		q := request(false)
		if err := decode(t, q, text); err != nil {
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
	q := request(false, &kserve.ModelInput{Name: "parameters", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{1}})
	err := decode(t, q, `{"parameters":1}`)
	if want := "Keyword 'parameters' for nested schema also given as input tensor name"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestMemoryIsGivenBack reads accepted and rejected requests.
func TestMemoryIsGivenBack(t *testing.T) {
	for _, text := range []string{`{"N":[1,2]}`, `{"N":[1,2],"M":[1,"x"]}`, `{"N":[1,2],"N":3}`} {
		q := request(false, &kserve.ModelInput{Name: "N", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}},
			&kserve.ModelInput{Name: "M", DataType: kserve.DataType_TYPE_INT64, Dims: []int64{-1}})
		_ = decode(t, q, text)
		q.Release()
		q.Release()
		if n := q.charge.Account.Used(budget.Bodies); n != 0 {
			t.Errorf("%s: %d bytes are still charged", text, n)
		}
	}
}

func TestFirstOfClashingMembersIsWritten(t *testing.T) {
	bytes := infer.Tensor{Name: "id", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte("\x01\x00\x00\x00o")}
	text := infer.Tensor{Name: "text", DataType: infer.Bytes, Shape: []int64{2}, Data: []byte("\x01\x00\x00\x00a\x00\x00\x00\x00")}
	number := infer.Tensor{Name: "a", DataType: infer.Uint8, Shape: []int64{1, 1}, Data: []byte{7}}
	r := &infer.Response{Model: "m", Version: 3, ID: "r", Outputs: []infer.Tensor{text, bytes, number},
		Parameters: []infer.Parameter{{Name: "model_name", String: "other"}, {Name: "a", Kind: infer.BoolParameter, Bool: true}, {Name: "z", Kind: infer.DoubleParameter, Double: 0.5}}}
	q := request(false)
	got, err := q.Append([]byte("x"), r)
	if want := `x{"a":true,"id":"r","model_name":"m","model_version":"3","text":["a",""],"z":0.5}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	r = &infer.Response{Model: "m", Version: 3, Outputs: []infer.Tensor{bytes, number}}
	if got, err = q.Append(nil, r); err != nil || string(got) != `{"a":7,"id":"o","model_name":"m","model_version":"3"}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestOutputWithoutFormInJSONIsAnErrorOfItsEvent checks that the event is complete.
func TestOutputWithoutFormInJSONIsAnErrorOfItsEvent(t *testing.T) {
	q := request(false)
	for _, out := range []infer.Tensor{
		{Name: "h", DataType: infer.FP16, Shape: []int64{1}, Data: make([]byte, 2)},
		{Name: "b", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte{9, 0, 0, 0}},
		{Name: "n", DataType: infer.Int32, Shape: []int64{2}, Data: make([]byte, 4)},
	} {
		got := string(q.AppendEvent(nil, &infer.Response{Model: "m", Outputs: []infer.Tensor{out}}))
		if !strings.HasPrefix(got, `data: {"error":"`) || !strings.HasSuffix(got, "\"}\n\n") || strings.Count(got, "{") != 1 {
			t.Errorf("%s: got %q", out.Name, got)
		}
	}
	if q.charge.Account.Used(budget.JSON) == 0 {
		t.Error("a text that has not been sent is not charged")
	}
	q.Sent()
	if n := q.charge.Account.Used(budget.JSON); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

// slot counts releases, from any goroutine.
type slot struct{ released atomic.Int64 }

func (*slot) Retain()    {}
func (s *slot) Release() { s.released.Add(1) }

func TestQueueHandsOverInOrderAndThenItsEnd(t *testing.T) {
	q, s := newQueue(), &slot{}
	refused := errors.New("refused")
	go func() {
		for i := range 100 {
			q.take(&infer.Response{Version: int64(i), Slot: s})
			q.take(&infer.Response{Empty: true, Slot: s})
		}
		q.end(refused)
		q.end(nil)
	}()
	next := int64(0)
	var space []*infer.Response
	for {
		list, last, err := q.next(space)
		for _, r := range list {
			if r.Version != next {
				t.Fatalf("got %d, want %d", r.Version, next)
			}
			next++
			r.Release()
		}
		space = list
		if !last {
			continue
		}
		if next != 100 || !errors.Is(err, refused) || s.released.Load() != 200 {
			t.Errorf("%d responses, %v, %d released", next, err, s.released.Load())
		}
		return
	}
}

func TestClosedQueueReleasesWhatItGets(t *testing.T) {
	q, s := newQueue(), &slot{}
	q.take(&infer.Response{Slot: s})
	q.close()
	q.take(&infer.Response{Slot: s})
	q.close()
	if n := s.released.Load(); n != 2 {
		t.Errorf("%d released, want 2", n)
	}
}
