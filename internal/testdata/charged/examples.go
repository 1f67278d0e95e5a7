// Package charged has examples of what TestChargedAllocations finds, which say so, and of what it does
// not.
package charged

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

type list struct {
	items   []int
	buffer  []byte // bound: the frame that is being read
	names   map[string]int
	few     map[string]int // bound: one for each kind
	counts  map[string]int
	builder strings.Builder
	bounded strings.Builder // bound: the frame that is being read
}

const most = 16

var kinds = []string{"a", "b"}

func sizes(frame []byte, l *list) {
	n := int(binary.LittleEndian.Uint32(frame))
	_ = make([]int, n)               // want: make takes its size from n
	_ = make([]int, 0, 2*len(frame)) // want: make takes its size from
	_ = make(map[string]int, n)      // want: make takes its size from n
	_ = make(chan int, n)            // want: make takes its size from n
	_ = make([]int, n)               // bound: checked by the caller
	// bound: checked by the caller
	_ = make([]int, n)
	_ = make([]int, most)
	_ = make([]int, min(n, most))
	_ = make([]int, len(kinds))
	_ = make([]int, n%most+1)
	small := min(n, most)
	_ = make([]int, small)
	_ = make([]byte, frame[0])
	small2 := 3
	small2 = n
	_ = make([]int, small2) // want: make takes its size from small2
}

func appends(c *budget.Charge, frame []byte, l *list) ([]byte, error) {
	var out []byte
	var numbers []int
	for _, b := range frame {
		out = append(out, b, b)           // want: out grows in a loop
		numbers = append(numbers, int(b)) // bound: as many as the frame has bytes
	}
	l.items = append(l.items, 1) // want: l.items grows with each call
	l.buffer = append(l.buffer, frame...)
	out = append(out, frame...) // want: append copies frame
	out = append(out, 'a', 'b')
	out = append(out, "constant"...)
	out = append(out, frame[:most]...)
	made := make([]byte, 0, most)
	for _, b := range frame {
		made = append(made, b)
	}
	for _, k := range kinds {
		out = append(out, k[0])
	}
	for i := range 4 {
		out = append(out, byte(i))
	}
	for _, b := range frame {
		fresh := []byte{}
		fresh = append(fresh, b)
		_ = fresh
	}
	out = appendText(out, string(frame)) // want: string(frame) is a copy
	var err error
	for _, b := range frame {
		if out, err = budget.Append(c, budget.JSON, out, b); err != nil {
			return nil, err
		}
	}
	charged, err := budget.Make[byte](c, budget.JSON, len(frame))
	charged = append(charged[:0], frame...)
	for _, b := range frame {
		charged = append(charged, b)
	}
	return charged, err
}

func rooms(c *budget.Charge, b []byte, more []byte) ([]byte, error) {
	b, err := budget.Grow(c, budget.JSON, b, len(more))
	if err != nil {
		return b, err
	}
	for _, one := range more {
		b = append(b, one)
	}
	d, err := room(c, more)
	for _, one := range more {
		d = append(d, one)
	}
	return d, err
}

// room returns a slice with room for more.
//
// bound: charged
func room(c *budget.Charge, more []byte) ([]byte, error) {
	return make([]byte, 0, len(more)), c.Take(budget.JSON, int64(len(more)))
}

func appendText(b []byte, text string) []byte {
	return append(b, text...) // want: append copies text
}

// appendBounded appends a name.
//
// bound: names have at most 4 KiB
func appendBounded(b []byte, text string) []byte {
	for range text {
		b = append(b, text...)
	}
	return b
}

func texts(frame []byte, text string, l *list) string {
	_ = strings.Repeat(text, 3)        // want: strings.Repeat makes a copy of text
	_ = strings.Repeat("a", len(text)) // want: strings.Repeat takes its size from
	_ = strings.Repeat("a", most)
	_ = bytes.Clone(frame) // want: bytes.Clone makes a copy of frame
	_ = slices.Clone(frame[:4])
	_ = strings.Split(text, ",") // want: strings.Split makes a copy of text
	_ = strings.SplitN(text, ",", most)
	_ = strings.SplitN(text, ",", len(frame)) // want: strings.SplitN makes a copy of text
	s := ""
	for range text {
		s += "a"     // want: s grows in a loop
		s = s + text // as above
		local := ""
		local += "b"
		_ = local
	}
	s += "a"
	if string(frame) == "a" || l.names[string(frame)] > 0 {
		return ""
	}
	switch string(frame) {
	case "b":
		return string(frame[:4])
	}
	l.builder.WriteString("constant")
	l.builder.WriteString(text) // want: Builder.WriteString grows by text
	l.builder.WriteByte('a')
	for range text {
		l.builder.WriteByte('a') // as above
	}
	var printed strings.Builder
	for _, b := range frame {
		fmt.Fprintf(&printed, "%d", b) // want: &printed grows in a loop
		fmt.Fprintf(&l.bounded, "%d", b)
	}
	_ = infer.Errorf(infer.InvalidArg, "got %s", string(frame))
	_ = []rune(text)     // want: is a copy
	return string(frame) // want: string(frame) is a copy
}

var (
	word    = regexp.MustCompile("a")
	escapes = strings.NewReplacer("a", "b")
	page    = template.Must(template.New("page").Parse("{{.}}"))
)

func writers(w io.Writer, frame []byte, text string) {
	_ = json.NewEncoder(w).Encode(text) // want: encoding/json.Encoder.Encode makes a copy of text
	_ = json.NewEncoder(w).Encode(kinds)
	_ = json.Indent(new(bytes.Buffer), frame, "", "") // want: encoding/json.Indent makes a copy of
	_ = escapes.Replace(text)                         // want: strings.Replacer.Replace makes a copy of text
	_ = escapes.Replace(text[:most])
	_ = word.ReplaceAllString(text, "")     // want: regexp.Regexp.ReplaceAllString makes a copy of text
	_ = word.ReplaceAllFunc(frame, nil)     // want: regexp.Regexp.ReplaceAllFunc makes a copy of frame
	_ = word.FindAllString(text, -1)        // want: regexp.Regexp.FindAllString makes a copy of text
	_ = html.EscapeString(text)             // want: html.EscapeString makes a copy of text
	_ = page.Execute(w, text)               // want: html/template.Template.Execute makes a copy of text
	_ = page.ExecuteTemplate(w, "a", frame) // want: html/template.Template.ExecuteTemplate makes a copy of frame
	_ = page.Execute(w, kinds)
}

func configs(c *kserve.ModelConfig) (names []string) {
	for _, input := range c.GetInput() {
		names = append(names, input.GetName()) // want: names grows in a loop
	}
	return names
}

func readers(r io.Reader, frame []byte) {
	_, _ = io.ReadAll(r) // want: io.ReadAll makes a copy of r
	var v any
	_ = json.Unmarshal(frame, &v) // want: encoding/json.Unmarshal makes a copy of frame
}

func keys(frame []byte, l *list) {
	local := map[string]int{}
	local["one"] = 1
	local[string(frame[:4])] = 2
	for _, b := range frame {
		local[string([]byte{b})] = 1 // want: local gets another key
	}
	l.names["constant"] = 1
	l.names[string(frame[:4])] = 1 // want: l.names gets another key
	l.few[string(frame[:4])] = 1
	l.counts[string(frame[:4])]++ // want: l.counts gets another key
	l.few[string(frame[:4])]++
	l.counts["constant"]++
	few := map[uint8]int{}
	for _, b := range frame {
		few[b]++
		local[string([]byte{b})]++ // as above
	}
	_ = maps.Clone(local) // want: maps.Clone makes a copy of local
}
