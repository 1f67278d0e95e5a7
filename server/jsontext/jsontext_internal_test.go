package jsontext

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
)

// TestJSONValues checks reading members and elements of containers, some of which are long enough
// to have a span.
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

// FuzzJSON checks that JSON valid for encoding/json is accepted and read alike, unless it is nested
// too deeply, has a number that is too large, or has half of a surrogate pair.
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
