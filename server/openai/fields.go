package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// fault is one mistake in a body, in the words of the framework of Triton's front end.
type fault struct {
	kind    string
	path    []string // within the body; numbers are indexes
	message string
	input   []byte // JSON
	context []byte // JSON; nil if absent
}

// number is a field that is a number or null.
type number struct {
	set, given bool // not null; in the body
	whole      bool // written without a point
	i          int64
	f          float64
}

func whole(i int64) number { return number{set: true, whole: true, i: i, f: float64(i)} }

// asked reports whether the client wants more than the field's default.
func (n *number) asked() bool { return n.set && n.given }

// fields reads the members of one object and collects their faults.
type fields struct {
	object jsontext.Value
	path   []string // to the object
	known  []string // fields that have been read
	faults *faults
}

// faults lists the mistakes of a body.
type faults struct {
	list  []fault
	shown int // bytes of wrong values in the list
}

// field returns a member, and whether it exists and is not null.
func (f *fields) field(name string) (v jsontext.Value, there bool) {
	f.known = append(f.known, name) // bound: the fields that there are
	v = f.object.Member(name)
	return v, v.Exists() && !v.IsNull()
}

func (f *fields) wrong(name string, v jsontext.Value, kind, message string) {
	f.wrongWith(name, v, kind, message, nil)
}

func (f *fields) wrongWith(name string, v jsontext.Value, kind, message string, context []byte) {
	f.add(fault{kind, f.below(strings.Split(name, ".")...), message, f.shown(v), context}) // bound: names of fields
}

// add lists a fault, unless there are too many.
func (f *fields) add(one fault) {
	if len(f.faults.list) < mostFaults {
		f.faults.list = append(f.faults.list, one) // bound: mostFaults
	}
}

// below returns a path below the object.
func (f *fields) below(names ...string) []string {
	return append(append([]string(nil), f.path...), names...) // bound: the nesting of fields
}

// mostShown bounds the wrong values in the reply, in bytes.
const mostShown = infer.MaxEcho

// shown returns a wrong value for the reply, or its beginning.
func (f *fields) shown(v jsontext.Value) []byte {
	if raw := v.Raw(); len(raw) <= mostShown-f.faults.shown && json.Valid(raw) {
		f.faults.shown += len(raw)
		return bytes.Clone(raw) // bound: mostShown
	}
	return appendText(nil, v.Brief())
}

// required reports whether a field exists; null counts.
func (f *fields) required(name string) (jsontext.Value, bool) {
	v, _ := f.field(name)
	if !v.Exists() {
		f.wrong(name, f.object, "missing", "Field required")
	}
	return v, v.Exists()
}

// text reads a string into to, if it exists.
func (f *fields) text(name string, v jsontext.Value, to *jsontext.String) bool {
	s, err := v.Text()
	if err != nil {
		f.wrong(name, v, "string_type", "Input should be a valid string")
		return false
	}
	*to = s
	return true
}

// requiredText is text for a required field.
func (f *fields) requiredText(name string, to *jsontext.String) bool {
	v, ok := f.required(name)
	return ok && f.text(name, v, to)
}

// optionalText is text for a field that may be null or absent.
func (f *fields) optionalText(name string, to *jsontext.String) bool {
	v, ok := f.field(name)
	return ok && f.text(name, v, to)
}

// name reads a short string, as f.requiredText or f.optionalText does.
func (f *fields) name(name string, read func(string, *jsontext.String) bool) (text string) {
	var s jsontext.String
	if !read(name, &s) {
		return ""
	}
	if n := s.Len(); n > budget.MaxName {
		f.tooMany(name, f.object.Member(name), "string_too_long", "String should have at most", "bytes", "String", n, budget.MaxName)
		return ""
	}
	return s.String() // bound: budget.MaxName
}

// tooMany adds the fault of a value that is too long.
func (f *fields) tooMany(name string, v jsontext.Value, kind, message, unit, of string, n, most int) {
	found, limit := strconv.Itoa(n), strconv.Itoa(most)
	f.wrongWith(name, v, kind, message+" "+limit+" "+unit+", not "+found, // bound: numbers
		[]byte(`{"field_type":"`+of+`","max_length":`+limit+`,"actual_length":`+found+`}`)) // bound: numbers
}

// bool reads a boolean. Words and numbers that mean one are accepted, too. An absent field leaves
// to unchanged, and null is false.
func (f *fields) bool(name string, to *bool) (given bool) {
	v, there := f.field(name)
	if !there {
		if v.Exists() {
			*to = false
		}
		return false
	}
	if b, err := v.Bool(); err == nil {
		*to = b
		return true
	}
	word := ""
	if s, err := v.Text(); err == nil {
		word = strings.ToLower(short(s)) // bound: mostDigits
	} else if raw := v.Raw(); len(raw) <= mostDigits && raw[0] != '[' && raw[0] != '{' {
		word = string(raw) // bound: mostDigits
	} else if v.IsArray() || v.IsObject() {
		f.wrong(name, v, "bool_type", "Input should be a valid boolean")
		return false
	}
	switch word {
	case "1", "1.0", "true", "t", "yes", "y", "on":
		*to = true
	case "0", "0.0", "false", "f", "no", "n", "off":
		*to = false
	default:
		f.wrong(name, v, "bool_parsing", "Input should be a valid boolean, unable to interpret input")
		return false
	}
	return true
}

// int reads a whole number between two bounds; null leaves n unset. An infinite bound is ignored.
func (f *fields) int(name string, n *number, low, high float64) {
	v, there := f.field(name)
	if n.given = v.Exists(); !there {
		n.set = n.set && !n.given
		return
	}
	i, kind, message := readInt(v)
	if kind != "" {
		f.wrong(name, v, kind, message)
		return
	}
	*n = number{set: true, given: true, whole: true, i: i, f: float64(i)}
	f.within(name, v, n, low, high)
}

func readInt(v jsontext.Value) (i int64, kind, message string) {
	if i, err := v.Int(); err == nil {
		return i, "", ""
	}
	if on, err := v.Bool(); err == nil {
		if on {
			i = 1
		}
		return i, "", ""
	}
	if f, err := v.Float(); err == nil {
		if f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			return 0, "int_from_float", "Input should be a valid integer, got a number with a fractional part"
		}
		return int64(f), "", ""
	}
	if s, err := v.Text(); err == nil {
		if i, err := strconv.ParseInt(strings.TrimSpace(short(s)), 10, 64); err == nil {
			return i, "", ""
		}
		return 0, "int_parsing", "Input should be a valid integer, unable to parse string as an integer"
	}
	return 0, "int_type", "Input should be a valid integer"
}

// mostDigits bounds strings that are read as numbers, as in Python for integers.
const mostDigits = 4300

// short returns a string that may be a number, or "" for a longer one.
func short(s jsontext.String) string {
	if s.Len() > mostDigits {
		return ""
	}
	return s.String() // bound: mostDigits
}

// float is int for any number.
func (f *fields) float(name string, n *number, low, high float64) {
	v, there := f.field(name)
	if n.given = v.Exists(); !there {
		n.set = n.set && !n.given
		return
	}
	x, err := v.Float()
	if s, isText := v.Text(); err != nil && isText == nil {
		if x, err = strconv.ParseFloat(strings.TrimSpace(short(s)), 64); err != nil {
			f.wrong(name, v, "float_parsing", "Input should be a valid number, unable to parse string as a number")
			return
		}
	}
	switch {
	case err != nil:
		f.wrong(name, v, "float_type", "Input should be a valid number")
		return
	case math.IsNaN(x) || math.IsInf(x, 0):
		f.wrong(name, v, "finite_number", "Input should be a finite number")
		return
	}
	*n = number{set: true, given: true, f: x}
	f.within(name, v, n, low, high)
}

func (f *fields) within(name string, v jsontext.Value, n *number, low, high float64) {
	bound := func(kind, words, key string, at float64) {
		limit := strconv.FormatFloat(at, 'f', -1, 64)
		text := limit
		if !n.whole {
			text = pythonFloat(at)
		}
		f.wrongWith(name, v, kind, "Input should be "+words+" than or equal to "+limit, []byte(`{"`+key+`":`+text+`}`)) // bound: numbers
	}
	switch {
	case n.f < low:
		bound("greater_than_equal", "greater", "ge", low)
	case n.f > high:
		bound("less_than_equal", "less", "le", high)
	}
}

// pythonFloat formats a double as Python does.
func pythonFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if e := math.Abs(f); e >= 1e16 || strings.ContainsAny(s, "e") && e < 1 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// stops reads a string or a short list of strings.
func (f *fields) stops(name string) (list []jsontext.String, isList bool) {
	v, there := f.field(name)
	if !there {
		return nil, false
	}
	if s, err := v.Text(); err == nil {
		return []jsontext.String{s}, false // bound: one
	}
	elements, err := v.Elements()
	if err != nil {
		f.wrong(name+".str", v, "string_type", "Input should be a valid string")
		f.wrong(name+".list[str]", v, "list_type", "Input should be a valid list")
		return nil, false
	}
	n := 0
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		s, err := e.Text()
		if err != nil {
			f.wrong(name+".str", v, "string_type", "Input should be a valid string")
			return nil, true
		}
		if n++; n <= budget.MaxStops {
			list = append(list, s) // bound: budget.MaxStops
		}
	}
	if n > budget.MaxStops {
		f.tooMany(name, v, "too_long", "List should have at most", "items after validation", "List", n, budget.MaxStops)
	}
	return list, true
}

// inside begins the fields of a member that is an object.
func (f *fields) inside(name string, v jsontext.Value) (*fields, bool) {
	if !v.IsObject() {
		f.wrong(name, v, "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
		return nil, false
	}
	return &fields{object: v, path: f.below(strings.Split(name, ".")...), faults: f.faults}, true // bound: names of fields
}

// nothingElse reports unknown members.
func (f *fields) nothingElse() {
	for m := f.object.Members(); ; {
		name, v, ok := m.Next()
		if !ok {
			return
		}
		if !f.isKnown(name) {
			if f.full() {
				return
			}
			spelled := name.Raw
			if len(spelled) <= mostShown {
				spelled = []byte(name.String()) // bound: mostShown
			}
			f.add(fault{"extra_forbidden", f.below(jsontext.Brief(spelled)), "Extra inputs are not permitted", f.shown(v), nil})
		}
	}
}

// mostFaults bounds the listed faults of a body.
const mostFaults = 32

func (f *fields) full() bool { return len(f.faults.list) >= mostFaults }

func (f *fields) isKnown(name jsontext.String) bool {
	for _, known := range f.known {
		if name.Is(known) {
			return true
		}
	}
	return false
}
