package replay

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/recording"
)

func floats(name string, values ...float32) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.FP32, Shape: []int64{1, int64(len(values))}, Data: testkit.TensorData(values...)}}
}

func texts(name string, values ...string) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.Bytes, Shape: []int64{int64(len(values))}, Data: testkit.TensorData(values...)}}
}

func raw(name string, d infer.DataType, data ...byte) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: d, Shape: []int64{int64(len(data) / d.Size())}, Data: data}}
}

func outputs(list ...recording.Tensor) recording.Message { return recording.Message{Tensors: list} }

func refusal(text string) recording.Message {
	return recording.Message{Err: infer.Errorf(infer.Internal, "%s", text)}
}

// TestDifferencesAreToldInSentences checks the sentences about differences between responses. want
// is joined by " | ". It is internal because a server can send only some of these responses.
func TestDifferencesAreToldInSentences(t *testing.T) {
	nan, other := math.Float32frombits(0x7fc00000), math.Float32frombits(0x7fc00001)
	parameters := func(list ...infer.Parameter) recording.Message { return recording.Message{Parameters: list} }
	number := func(name string, n int64) infer.Parameter {
		return infer.Parameter{Name: name, Kind: infer.IntParameter, Int: n}
	}
	cut := raw("A", infer.Int16, 1, 0, 2, 0)
	cut.Data = cut.Data[:3]
	hidden := floats("A", 1)
	hidden.Redacted, hidden.Data = true, nil
	one := func(messages ...recording.Message) []recording.Message { return messages }
	for _, c := range []struct {
		name    string
		c       comparison
		was, is []recording.Message
		want    string
	}{
		{"the same", comparison{}, one(outputs(floats("A", 1, 2), texts("B", "x"))), one(outputs(texts("B", "x"), floats("A", 1, 2))), ""},
		{"an element", comparison{}, one(outputs(floats("A", 1, 2, 3))), one(outputs(floats("A", 1, 2.5, 4))), "output A: element [0,1] is 2.5, was 2; 2 of 3 elements differ"},
		{"within the tolerance", comparison{tolerance: 1e-3}, one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1000.9, .0009))), ""},
		{"beyond the tolerance", comparison{tolerance: 1e-3}, one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1001.5, .0011))), "output A: element [0,0] is 1001.5, was 1000; 2 of 2 elements differ"},
		{"what is no number", comparison{}, one(outputs(floats("A", nan, 0))), one(outputs(floats("A", other, float32(math.Copysign(0, -1))))), ""},
		{"a number that is none any more", comparison{tolerance: 1e9}, one(outputs(floats("A", 1))), one(outputs(floats("A", nan))), "output A: element [0,0] is NaN, was 1"},
		{"infinite", comparison{tolerance: 1}, one(outputs(floats("A", float32(math.Inf(1))))), one(outputs(floats("A", float32(math.Inf(-1))))), "output A: element [0,0] is -Inf, was +Inf"},
		{"tolerance of integers", comparison{tolerance: 1}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 255))), "output A: element [0] is -1, was 1"},
		{"texts", comparison{}, one(outputs(texts("A", "", "b"))), one(outputs(texts("A", "", "\x00"))), `output A: element [1] is "\x00", was "b"; 1 of 2 elements differ`},
		{"texts of other lengths", comparison{}, one(outputs(texts("A", "ab"))), one(outputs(texts("A", "a"))), `output A: element [0] is "a", was "ab"`},
		{"a half", comparison{tolerance: 1e-2}, one(outputs(raw("A", infer.FP16, 0, 0x3c, 1, 0))), one(outputs(raw("A", infer.FP16, 4, 0x3c, 0, 0x80))), ""},
		{"a brain float", comparison{}, one(outputs(raw("A", infer.BF16, 0x80, 0x3f))), one(outputs(raw("A", infer.BF16, 0, 0x40))), "output A: element [0] is 2, was 1"},
		{"a type", comparison{}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Uint8, 1))), "output A: the type is UINT8, was INT8"},
		{"a shape", comparison{}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 1, 2))), "output A: the shape is [2], was [1]"},
		{"an incomplete element", comparison{}, one(outputs(raw("A", infer.Int16, 1, 0, 2, 0))), one(outputs(cut)), `output A: element [1] is "\x02", was 2; 1 of 2 elements differ`},
		{"names", comparison{}, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), "output A is missing | output B is new"},
		{"ignored", comparison{ignored: ignored{outputs: map[string]bool{"A": true, "B": true}}}, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), ""},
		{"redacted", comparison{}, one(outputs(hidden)), one(outputs(floats("A", 5))), ""},
		{"redacted, of another shape", comparison{}, one(outputs(hidden)), one(outputs(floats("A", 5, 6))), "output A: the shape is [1,2], was [1,1]"},
		{"redacted inputs", comparison{namesAlone: true}, one(outputs(floats("A", 1))), one(outputs(floats("A", 5, 6))), ""},
		{"errors", comparison{}, one(refusal("x")), one(refusal("x")), ""},
		{"other errors", comparison{}, one(refusal("x")), one(refusal("y")), `the error is "y", was "x"`},
		{"an error for a response", comparison{}, one(outputs()), one(refusal("y")), `it is the error "y", was a response`},
		{"a response for an error", comparison{}, one(refusal("x")), one(outputs()), `it is a response, was the error "x"`},
		{"a stream", comparison{}, one(outputs(), refusal("x")), one(outputs(), refusal("y"), outputs()), `response 2: the error is "y", was "x" | 3 responses, was 2`},
		{"nothing", comparison{}, one(refusal("x")), nil, `no response, was the error "x"`},
		{"parameters", comparison{}, one(parameters(number("a", 1), number("b", 2))), one(parameters(number("b", 3), number("c", 4), number("sequence_id", 1))), "parameter a is missing, was 1 | parameter b is 3, was 2 | parameter c is new: 4"},
		{"a whole number", comparison{}, one(parameters(infer.Parameter{Name: "a", Kind: infer.DoubleParameter, Double: 2})), one(parameters(number("a", 2))), ""},
		{"parameters that are ignored", comparison{ignored: ignored{parameters: map[string]bool{"a": true}}}, one(parameters(number("a", 1))), one(parameters(number("a", 2))), ""},
	} {
		if got := strings.Join(c.c.compare(c.was, c.is), " | "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestDifferencesAreBounded checks that only the first of many or long differences are kept. It is
// internal because it checks the comparison alone.
func TestDifferencesAreBounded(t *testing.T) {
	was, is := make([]recording.Message, 5000), make([]recording.Message, 5000)
	for i := range was {
		was[i], is[i] = refusal("x"), refusal("y")
	}
	c := comparison{}
	many := c.compare(was, is)
	if n := len(many); n > 2000 || many[n-1] != fmt.Sprintf("and %d more differences", 5000-n+1) {
		t.Errorf("got %d differences, the last of them %q", n, many[n-1])
	}
	is[0].Err = &infer.Error{Message: strings.Repeat("y", 1<<20)}
	if long := c.compare(was[:1], is[:1]); len(long) != 1 || len(long[0]) > infer.MaxEcho {
		t.Errorf("got %d differences, the first of %d bytes", len(long), len(long[0]))
	}
}

// TestValuesOfAllTypesAreShown checks the text of a value of each data type with all bits set, and
// the conversion of half-precision numbers. It is internal because it checks single values.
func TestValuesOfAllTypesAreShown(t *testing.T) {
	all := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	for d, want := range map[infer.DataType]string{
		infer.Bool: "true", infer.Uint8: "255", infer.Int8: "-1", infer.Uint16: "65535", infer.Int16: "-1", infer.Uint32: "4294967295", infer.Int32: "-1",
		infer.Uint64: "18446744073709551615", infer.Int64: "-1", infer.FP16: "NaN", infer.BF16: "NaN", infer.FP32: "NaN", infer.FP64: "NaN",
	} {
		if got := value(d, all[:d.Size()]); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for bits, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 1: math.Ldexp(1, -24), 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := float64(infer.FromFP16(bits)); got != want {
			t.Errorf("half %#x: got %v, want %v", bits, got, want)
		}
	}
	if got := value(infer.Bytes, []byte(strings.Repeat("x", 100))); got != `"`+strings.Repeat("x", 60)+`"… (100 bytes)` {
		t.Errorf("got %s", got)
	}
}
