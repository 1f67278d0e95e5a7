package jsontext_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/jsontext"
)

func TestJSONSyntax(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"a":[1,-2.5e3,true,false,null,"\u00e9\n"],"b":{}} `, ""},
		{"\ufeff{}", ""}, {"{}\x00x", ""}, {`[NaN,Inf,-Inf,Infinity,-Infinity]`, ""}, {`"\udc00"`, ""}, {"\"\xff\"", ""}, {"1e308", ""}, {"1e-999", ""},
		{"", "The document is empty. at 0"}, {"  ", "The document is empty. at 2"},
		{"{}{}", "The document root must not be followed by other values. at 2"},
		{"x", "Invalid value. at 0"}, {"tru", "Invalid value. at 3"}, {"trux", "Invalid value. at 3"}, {"[1,]", "Invalid value. at 3"}, {"-", "Invalid value. at 1"}, {"Infinit", "Invalid value. at 7"},
		{"{,", "Missing a name for object member. at 1"}, {`{"a":1,}`, "Missing a name for object member. at 7"},
		{`{"a" 1}`, "Missing a colon after a name of object member. at 5"},
		{`{"a":1 "b"`, "Missing a comma or } after an object member. at 7"},
		{`[1 2]`, "Missing a comma or ] after an array element. at 3"},
		{`"abc`, "Missing a closing quotation mark in string. at 4"},
		{`"\x"`, "Invalid escape character in string. at 1"}, {"\"\n\"", "Invalid escape character in string. at 1"},
		{`"\u12g4"`, "Incorrect hex digit after \\u escape in string. at 1"},
		{`"\ud800x"`, "The surrogate pair in string is invalid. at 1"}, {`"\ud800\u0041"`, "The surrogate pair in string is invalid. at 1"},
		{"1e309", "Number too big to be stored in double. at 0"}, {strings.Repeat("9", 400), "Number too big to be stored in double. at 0"},
		{"1.", "Miss fraction part in number. at 2"}, {"1e+", "Miss exponent in number. at 3"},
		{strings.Repeat("[", 100) + strings.Repeat("]", 100), ""}, {strings.Repeat("[", 101), "JSON nesting depth exceeds maximum allowed limit (100)"},
	} {
		got := ""
		if _, err := new(jsontext.Scanner).Scan(nil, []byte(tt.text)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%.40q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestScanChargesSpans checks that the spans of nested arrays around long strings are charged.
func TestScanChargesSpans(t *testing.T) {
	text := []byte("[" + strings.Repeat(nested(99, 1200)+",", 1000) + "0]")
	account := budget.New(budget.Config{Limit: 64 << 20})
	c := budget.Charge{Account: account}
	var s jsontext.Scanner
	if _, err := s.Scan(&c, text); err != nil {
		t.Fatal(err)
	}
	if got, want := account.Used(budget.JSON), int64(s.Kept()*16); got != want || want < 99*1000*16 {
		t.Errorf("got %d bytes charged for %d spans", got, s.Kept())
	}
	c.Settle()
	short := budget.Charge{Account: budget.New(budget.Config{Limit: 1 << 20})}
	if _, err := new(jsontext.Scanner).Scan(&short, text); err == nil || !strings.Contains(err.Error(), "bytes of memory") {
		t.Errorf("an account that is too small: got error %v, want a refused charge", err)
	}
}

// nested returns a string of size bytes in depth arrays.
func nested(depth, size int) string {
	return strings.Repeat("[", depth) + `"` + strings.Repeat("a", size) + `"` + strings.Repeat("]", depth)
}

// TestWalksAreLinear checks that a walk over a deeply nested document takes about as long as one
// over a flat document of the same size. Short arrays have no span: without Document.walked each
// level would read all levels below it again, which takes about 50 times as long.
func TestWalksAreLinear(t *testing.T) {
	const size = 1 << 20
	flat := scanned(t, "["+strings.Repeat("[],[],", size/6)+"0]")
	deep := scanned(t, "["+strings.Repeat(nested(99, 0)+",", size/201)+"0]")
	least := func(doc *jsontext.Document) time.Duration {
		best := time.Hour
		for range 3 {
			began := time.Now()
			visit(doc.Root())
			best = min(best, time.Since(began))
		}
		return best
	}
	if once, again := least(flat), least(deep); again > 10*once {
		t.Errorf("nested arrays: got %v, want about the %v of flat ones", again, once)
	}
}

func scanned(t *testing.T, text string) *jsontext.Document {
	t.Helper()
	doc, err := new(jsontext.Scanner).Scan(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func visit(v jsontext.Value) {
	elements, err := v.Elements()
	if err != nil {
		return
	}
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		visit(e)
	}
}

// BenchmarkScan scans a request with 1,000 numbers and walks over its members.
func BenchmarkScan(b *testing.B) {
	text := []byte(`{"id":"1","inputs":[{"name":"INPUT0","shape":[1000],"datatype":"FP32","data":[` + strings.Repeat("0.125,", 999) + "1]}]}")
	var s jsontext.Scanner
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		doc, err := s.Scan(nil, text)
		if err != nil {
			b.Fatal(err)
		}
		elements, _ := doc.Root().Member("inputs").Elements()
		for e, ok := elements.Next(); ok; e, ok = elements.Next() {
			if !e.Member("data").IsArray() {
				b.Fatal("no data")
			}
		}
	}
}

func TestAppendJSONFloat(t *testing.T) {
	for _, tt := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {1, "1.0"}, {-1.5, "-1.5"}, {0.1, "0.1"}, {float64(float32(0.1)), "0.10000000149011612"},
		{1e20, "100000000000000000000.0"}, {1e21, "1e21"}, {1e22, "1e22"}, {123456790519087104, "123456790519087100.0"}, {1.5e300, "1.5e300"},
		{1e-6, "0.000001"}, {1e-7, "1e-7"}, {1.5e-7, "1.5e-7"}, {5e-324, "5e-324"}, {math.MaxFloat64, "1.7976931348623157e308"},
		{math.NaN(), "NaN"}, {math.Inf(1), "Infinity"}, {math.Inf(-1), "-Infinity"}, {123.456, "123.456"}, {9007199254740993, "9007199254740992.0"},
	} {
		if got := string(jsontext.AppendFloat(nil, tt.f)); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.f, got, tt.want)
		}
	}
}

func TestAppendJSONString(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if got, want := jsontext.Quoted(all), len(jsontext.AppendString(nil, all)); got != want {
		t.Errorf("the length of a quoted text: got %d, want %d", got, want)
	}
	if got, want := string(jsontext.AppendString(nil, "a\"\\/\b\f\n\r\t\x01\x1f<>&é\xff")), `"a\"\\/\b\f\n\r\t\u0001\u001F<>&é`+"\xff\""; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
