package jinja_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/server/openai/jinja"
)

// golden is a line of testdata/golden.jsonl: a template and its result in Python's Jinja.
type golden struct {
	Template       string
	Want, Raised   *string
	Fails, Invalid string // when it is rendered, when it is parsed
	Variables      json.RawMessage
}

// decode decodes JSON into a value and keeps the order of object members.
func decode(t testing.TB, d *json.Decoder) jinja.Value {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			list := jinja.List{}
			for d.More() {
				list = append(list, decode(t, d))
			}
			_, _ = d.Token()
			return list
		}
		whole := &jinja.Dict{}
		for d.More() {
			name, _ := d.Token()
			whole.Set(name.(string), decode(t, d))
		}
		_, _ = d.Token()
		return whole
	case json.Number:
		if n, err := token.Int64(); err == nil {
			return n
		}
		x, _ := token.Float64()
		return x
	default:
		return token
	}
}

func read(t testing.TB) (variables map[string]jinja.Value, list []golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		if g.Variables != nil {
			d := json.NewDecoder(bytes.NewReader(g.Variables))
			d.UseNumber()
			variables = decode(t, d).(*jinja.Dict).Values()
			continue
		}
		list = append(list, g)
	}
	return variables, list
}

var limits = jinja.Limits{Now: func() time.Time { return time.Date(2026, 2, 3, 14, 5, 6, 0, time.UTC) }}

func TestTemplatesRenderAsInPython(t *testing.T) {
	variables, list := read(t)
	for _, g := range list {
		template, err := jinja.Parse(g.Template)
		if (err != nil) != (g.Invalid != "") {
			t.Errorf("%s: Parse says %v, Python %q", g.Template, err, g.Invalid)
		}
		if err != nil {
			continue
		}
		got, err := template.Render(variables, limits)
		var raised *jinja.RaisedError
		switch {
		case g.Want != nil && (err != nil || got != *g.Want):
			t.Errorf("%s: got %q, %v, want %q", g.Template, got, err, *g.Want)
		case g.Raised != nil && (!errors.As(err, &raised) || raised.Message != *g.Raised):
			t.Errorf("%s: got %q, %v, want %q raised", g.Template, got, err, *g.Raised)
		case g.Fails != "" && (err == nil || errors.As(err, &raised)):
			t.Errorf("%s: got %q, %v, want the error %s", g.Template, got, err, g.Fails)
		}
	}
}

// TestRenderingsEnd checks that limits on steps, calls and bytes end every rendering.
func TestRenderingsEnd(t *testing.T) {
	errRoom := errors.New("no room")
	left := int64(0)
	bounded := jinja.Limits{Steps: 100_000, Room: func(n int64) error {
		if left -= n; left < 0 {
			return errRoom
		}
		return nil
	}}
	for source, want := range map[string]string{
		"{% set r = range(1000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}":                "more than 100000 steps",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}":                                                  "calls nest too deeply",
		"{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}": "no room",
		"{{ 'a' * 2000000000 }}":                                                   "no room",
		"{{ 'ab' * 2000000000 }}":                                                  "repeated too often",
		"{{ ('a' * 100000).replace('a', 'b' * 100000) }}":                          "no room",
		"{{ ('a' * 10000) | join('b' * 1000) }}":                                   "no room",
		"{{ range(0, 9223372036854775807, 9223372036854775807) | list | length }}": "",
		"{{ l[::9223372036854775807] }}{{ l[::-9223372036854775807] }}":            "",
		"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ ns == ns }}":     "",
		"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | tojson }}":          "not JSON serializable",
	} {
		left = 1 << 20
		template, err := jinja.Parse(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		_, err = template.Render(map[string]jinja.Value{"l": jinja.List{int64(1), int64(2)}}, bounded)
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
	for _, deep := range []string{"(", "[", "{{ not ", "-", "{% if x %}", "a if "} {
		source := strings.Repeat(deep, 100_000)
		if !strings.HasPrefix(source, "{") {
			source = "{{ " + source
		}
		if _, err := jinja.Parse(source); err == nil {
			t.Errorf("%.20s…: no error", source)
		}
	}
}

// TestRenderingsEndWhenTheyAreNotWanted checks that a rendering ends during all kinds of work if
// Limits.Ended returns an error.
func TestRenderingsEndWhenTheyAreNotWanted(t *testing.T) {
	errEnded := errors.New("ended")
	list := jinja.List{}
	for i := range 1 << 12 {
		list = append(list, int64(i))
	}
	for _, source := range []string{
		"{% for i in l %}{% endfor %}", "{{ l | unique | length }}", "{{ l | sort | length }}", "{{ l | tojson }}", "{{ l }}", "{{ l == l }}", "{{ -1 in l }}",
		"{{ ('a' * 10000000).count('b') }}", "{{ ('a' * 10000000) | upper }}", "{{ l | map('string') | join }}", "{{ l | select('odd') | list | length }}",
	} {
		template, err := jinja.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		_, err = template.Render(map[string]jinja.Value{"l": list}, jinja.Limits{Ended: func() error { return errEnded }})
		if !errors.Is(err, errEnded) {
			t.Errorf("%s: got %v, want that it has ended", source, err)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	variables, list := read(f)
	for _, g := range list {
		f.Add(g.Template)
	}
	f.Fuzz(func(_ *testing.T, source string) {
		template, err := jinja.Parse(source)
		if err != nil {
			return
		}
		left := int64(1 << 20)
		_, _ = template.Render(variables, jinja.Limits{Steps: 10_000, Room: func(n int64) error {
			if left -= n; left < 0 {
				return errors.New("no room")
			}
			return nil
		}})
	})
}
