package jsontext

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
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
		if _, err := new(Scanner).Scan(nil, []byte(tt.text)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%.40q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestJSONValues walks over containers with and without a span.
func TestJSONValues(t *testing.T) {
	long := strings.Repeat(`"]}\"",`, 300)
	text := `{"a":{"x":[` + long + `1],"y":[[],{}]},"b\u0063":-7,"a":5,"d":[1,[2,` + long + `3],"e"]}`
	v, err := new(Scanner).Scan(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for m := v.Root().Members(); ; {
		name, _, ok := m.Next()
		if !ok {
			break
		}
		names += name.String() + " "
	}
	if names != "a bc a d " {
		t.Errorf("names: got %q", names)
	}
	if !v.Root().Member("a").IsObject() {
		t.Error("member a: got another one than the first")
	}
	if n, err := v.Root().Member("bc").Uint(); err != errNotUnsigned {
		t.Errorf("bc: got %d, %v", n, err)
	}
	elements, err := v.Root().Member("d").Elements()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, ok := elements.Next(); ok; _, ok = elements.Next() {
		count++
	}
	if count != 3 {
		t.Errorf("elements: got %d, want 3", count)
	}
	if _, ok := elements.Next(); ok {
		t.Error("an element follows the last one")
	}
}

// TestScanChargesSpans scans nested arrays around long strings, each of which has a span.
func TestScanChargesSpans(t *testing.T) {
	text := []byte("[" + strings.Repeat(nested(99, 1200)+",", 1000) + "0]")
	account := budget.New(budget.Config{Limit: 64 << 20})
	c := budget.Charge{Account: account}
	var s Scanner
	if _, err := s.Scan(&c, text); err != nil {
		t.Fatal(err)
	}
	if got, want := account.Used(budget.JSON), int64(s.Kept()*16); got != want || want < 99*1000*16 {
		t.Errorf("got %d bytes charged for %d spans", got, s.Kept())
	}
	c.Settle()
	short := budget.Charge{Account: budget.New(budget.Config{Limit: 1 << 20})}
	if _, err := new(Scanner).Scan(&short, text); err == nil || !strings.Contains(err.Error(), "bytes of memory") {
		t.Errorf("an account that is too small: got error %v, want a refused charge", err)
	}
}

// nested returns a string of size bytes in depth arrays.
func nested(depth, size int) string {
	return strings.Repeat("[", depth) + `"` + strings.Repeat("a", size) + `"` + strings.Repeat("]", depth)
}

// TestWalksAreLinear walks over everything in documents of one size with different nesting. Short
// arrays have no span: without Document.walked each level would read all levels below it again,
// which takes about 50 times as long.
func TestWalksAreLinear(t *testing.T) {
	const size = 1 << 20
	flat := scanned(t, "["+strings.Repeat("[],[],", size/6)+"0]")
	deep := scanned(t, "["+strings.Repeat(nested(99, 0)+",", size/201)+"0]")
	least := func(doc *Document) time.Duration {
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

func scanned(t *testing.T, text string) *Document {
	t.Helper()
	doc, err := new(Scanner).Scan(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func visit(v Value) {
	elements, err := v.Elements()
	if err != nil {
		return
	}
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		visit(e)
	}
}

// BenchmarkScan scans a request of 1,000 numbers, and walks over its members.
func BenchmarkScan(b *testing.B) {
	text := []byte(`{"id":"1","inputs":[{"name":"INPUT0","shape":[1000],"datatype":"FP32","data":[` + strings.Repeat("0.125,", 999) + "1]}]}")
	var s Scanner
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
		if got := string(AppendFloat(nil, tt.f)); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.f, got, tt.want)
		}
	}
}

func TestAppendJSONString(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if got, want := Quoted(all), len(AppendString(nil, all)); got != want {
		t.Errorf("the length of a quoted text: got %d, want %d", got, want)
	}
	if got, want := string(AppendString(nil, "a\"\\/\b\f\n\r\t\x01\x1f<>&é\xff")), `"a\"\\/\b\f\n\r\t\u0001\u001F<>&é`+"\xff\""; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzJSON compares the syntax with encoding/json's. Standard JSON must be accepted and read alike,
// unless it is too deep, has a number that is too big, or half a character.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e-3,true,null,"\u00e9\ud83d\ude00"]}`, "[NaN]", "1e309", `"\\\""`, "-0", "12345678901234567890.5", "[[[]]]", `{"":[null,"\u0080\ud800"]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := new(Scanner).Scan(nil, text)
		if err != nil {
			var syntax *SyntaxError
			if json.Valid(text) && errors.As(err, &syntax) && syntax.reason != tooBig && syntax.reason != invalidSurrogate {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		walkJSON(t, v.Root())
		switch value := v.Root(); {
		case !json.Valid(text):
		case value.first() == '"':
			var want string
			s, _ := value.Text()
			if json.Unmarshal(text, &want) == nil && !strings.Contains(want, "\ufffd") && s.String() != want {
				t.Fatalf("got %q, want %q", s.String(), want)
			}
			if got := len(s.String()); got != s.Len() {
				t.Fatalf("length: got %d, want %d", s.Len(), got)
			}
		case value.first() == '-' || isDigit(value.first()):
			number := strings.TrimSpace(string(text))
			want, _ := strconv.ParseFloat(number, 64)
			got, _, ok := readFloat(v.buf, v.root)
			if !ok || got != want {
				t.Fatalf("got %v, %v; want %v", got, ok, want)
			}
			printed := AppendFloat(nil, got)
			if back, err := strconv.ParseFloat(string(printed), 64); !math.IsInf(got, 0) && (err != nil || back != got) {
				t.Fatalf("%v is printed as %s", got, printed)
			}
			if want, err := strconv.ParseInt(number, 10, 64); err == nil {
				if kind, u, _ := readNumber(v.buf, v.root); int64(u) != want || kind != smallNumber && kind != negativeNumber {
					t.Fatalf("got %d of kind %d, want %d", int64(u), kind, want)
				}
			}
		}
	})
}

// walkJSON reads everything in a value.
func walkJSON(t *testing.T, v Value) {
	if end := v.end(); end <= v.at || end > len(v.t.buf) {
		t.Fatalf("value at %d ends at %d of %d", v.at, end, len(v.t.buf))
	}
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			break
		}
		_ = name.String()
		walkJSON(t, value)
	}
	_, _ = v.Int()
	_, _ = v.Float()
	elements, err := v.Elements()
	if err != nil {
		return
	}
	for value, ok := elements.Next(); ok; value, ok = elements.Next() {
		walkJSON(t, value)
	}
	for _, read := range []func(l *Leaves) error{
		func(l *Leaves) error { _, err := l.Bool(); return err },
		func(l *Leaves) error { _, err := l.Int(); return err },
		func(l *Leaves) error { _, err := l.Uint(); return err },
		func(l *Leaves) error { _, err := l.Float(); return err },
		readText,
	} {
		leaves, err := v.Leaves()
		if err != nil {
			t.Fatalf("an array has elements and no leaves: %v", err)
		}
		n := int64(0)
		for leaves.Next() {
			if n++; n > v.MostLeaves() {
				t.Fatalf("got leaf %d, want at most %d", n, v.MostLeaves())
			}
			if read(&leaves) != nil {
				break
			}
		}
	}
}

func readText(l *Leaves) error {
	s, err := l.Text()
	if err == nil && len(s.AppendTo(nil)) != s.Len() {
		return errors.New("the length of a string is not what is appended")
	}
	return err
}
