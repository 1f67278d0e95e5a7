package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/kserve"
)

// strictJSON converts the JSON form of a configuration as protobuf's C++ library accepts it to the
// form that the Go library accepts. The C++ library also accepts names without quotes, single
// quotes, a trailing comma, repeated names, enum names in any case, enum numbers and bools as
// strings, and a single value for a repeated field. It returns false for text that the C++ library
// does not accept either.
//
// bound: the config
func strictJSON(text []byte) ([]byte, bool) {
	r := relaxed{text: text}
	tree, ok := r.value(0)
	object, is := tree.(members)
	if r.space(); !ok || !is || r.at < len(text) {
		return nil, false
	}
	strict, err := json.Marshal(object.fit((&kserve.ModelConfig{}).ProtoReflect().Descriptor()))
	return strict, err == nil
}

// relaxed reads JSON as protobuf's C++ library does.
type relaxed struct {
	text []byte
	at   int
}

// members are the members of an object in their order; names may repeat.
type members []member

type member struct {
	name  string
	value any // members, []any, string, json.Number, bool or nil
}

// space skips blanks and returns the next byte, 0 at the end.
func (r *relaxed) space() byte {
	for ; r.at < len(r.text); r.at++ {
		if c := r.text[r.at]; !strings.ContainsRune(" \t\n\v\f\r", rune(c)) {
			return c
		}
	}
	return 0
}

func (r *relaxed) takes(c byte) bool {
	if r.space() != c {
		return false
	}
	r.at++
	return true
}

// number matches a JSON number.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`)

var literals = []struct {
	text  []byte
	value any
}{{[]byte("true"), true}, {[]byte("false"), false}, {[]byte("null"), nil}}

// value reads a value inside depth objects and lists.
//
// bound: the config
func (r *relaxed) value(depth int) (any, bool) {
	c := r.space()
	if depth == budget.MaxJSONDepth && (c == '{' || c == '[') {
		return nil, false
	}
	switch c {
	case '{':
		r.at++
		return r.object(depth)
	case '[':
		r.at++
		return r.list(depth)
	case '"', '\'':
		r.at++
		return r.quoted(c)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		n := number.Find(r.text[r.at:])
		r.at += len(n)
		return json.Number(n), len(n) > 0 && !r.word()
	}
	for _, literal := range literals {
		if bytes.HasPrefix(r.text[r.at:], literal.text) {
			r.at += len(literal.text)
			return literal.value, !r.word()
		}
	}
	return nil, false
}

// word reports whether a letter, a digit or the like is next.
func (r *relaxed) word() bool { return r.at < len(r.text) && inName(r.text[r.at]) }

func inName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$'
}

// bound: the config
func (r *relaxed) object(depth int) (any, bool) {
	list := members{}
	for !r.takes('}') {
		if len(list) > 0 && !r.takes(',') {
			return nil, false
		}
		if len(list) > 0 && r.takes('}') {
			break
		}
		name, ok := r.name()
		if !ok || !r.takes(':') {
			return nil, false
		}
		value, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, member{name, value})
	}
	return list, true
}

// name reads the name of a member, in quotes or bare.
//
// bound: the config
func (r *relaxed) name() (string, bool) {
	c := r.space()
	if c == '"' || c == '\'' {
		r.at++
		name, ok := r.quoted(c)
		text, _ := name.(string)
		return text, ok
	}
	begin := r.at
	for r.word() {
		r.at++
	}
	return string(r.text[begin:r.at]), begin < r.at && (c < '0' || c > '9')
}

// bound: the config
func (r *relaxed) list(depth int) (any, bool) {
	list := []any{}
	for !r.takes(']') {
		if len(list) > 0 && !r.takes(',') {
			return nil, false
		}
		if len(list) > 0 && r.takes(']') {
			break
		}
		value, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, value)
	}
	return list, true
}

// escapes maps the letters behind a backslash that are replaced; any other letter stands for
// itself.
var escapes = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// quoted reads a string whose first quote has been read.
//
// bound: the config
func (r *relaxed) quoted(quote byte) (any, bool) {
	var b strings.Builder
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch {
		case c == quote:
			return b.String(), utf8.ValidString(b.String())
		case c != '\\':
			b.WriteByte(c)
			continue
		case r.at == len(r.text):
			return nil, false
		}
		c = r.text[r.at]
		r.at++
		if to, is := escapes[c]; is {
			c = to
		} else if c == 'u' {
			if !r.unicode(&b) {
				return nil, false
			}
			continue
		}
		b.WriteByte(c)
	}
	return nil, false
}

// unicode reads the digits after \u, with the other half of a surrogate pair.
func (r *relaxed) unicode(to *strings.Builder) bool {
	first, ok := r.hex()
	if !ok {
		return false
	}
	if utf16.IsSurrogate(first) {
		if !strings.HasPrefix(string(r.text[r.at:min(len(r.text), r.at+2)]), `\u`) { // bound: two bytes
			return false
		}
		r.at += 2
		second, ok := r.hex()
		if first = utf16.DecodeRune(first, second); !ok || first == utf8.RuneError {
			return false
		}
	}
	to.WriteRune(first)
	return true
}

func (r *relaxed) hex() (rune, bool) {
	if len(r.text)-r.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[r.at:r.at+4]), 16, 16) // bound: four bytes
	r.at += 4
	return rune(n), err == nil
}

// fit converts members to those of a message, by their declared names. If a name repeats, the last
// value counts, messages are merged, and lists grow. Unknown names stay.
//
// bound: the config
func (m members) fit(message protoreflect.MessageDescriptor) map[string]any {
	given := make(map[string][]any)
	for _, x := range m {
		name := x.name
		if field := message.Fields().ByJSONName(name); field != nil {
			name = field.TextName()
		}
		given[name] = append(given[name], x.value)
	}
	object := make(map[string]any, len(given))
	for name, values := range given {
		field := message.Fields().ByTextName(name)
		switch {
		case field == nil:
			object[name] = plain(values[len(values)-1])
		case field.IsMap():
			object[name] = fitMap(values, field.MapValue())
		case field.IsList():
			object[name] = fitList(values, field)
		default:
			object[name] = fitOne(unite(values), field)
		}
	}
	return object
}

// unite makes one value from those of a name.
//
// bound: the config
func unite(values []any) any {
	joined, is := values[0].(members)
	for _, v := range values[1:] {
		more, also := v.(members)
		if is = is && also; is {
			joined = append(joined, more...)
		}
	}
	if is {
		return joined
	}
	return values[len(values)-1]
}

// bound: the config
func fitMap(values []any, of protoreflect.FieldDescriptor) any {
	m, ok := unite(values).(members)
	if !ok {
		return plain(values[len(values)-1])
	}
	object := make(map[string]any, len(m))
	for _, entry := range m {
		object[entry.name] = fitOne(entry.value, of)
	}
	return object
}

// bound: the config
func fitList(values []any, of protoreflect.FieldDescriptor) any {
	list := []any{}
	for _, v := range values {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				list = append(list, fitOne(item, of))
			}
		case nil:
		default:
			list = append(list, fitOne(v, of))
		}
	}
	return list
}

// bound: the config
func fitOne(value any, of protoreflect.FieldDescriptor) any {
	text, isText := value.(string)
	switch {
	case of.Message() != nil:
		if m, ok := value.(members); ok {
			return m.fit(of.Message())
		}
	case of.Enum() != nil && isText:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return n
		}
		return strings.ToUpper(text)
	case of.Kind() == protoreflect.BoolKind && (text == "true" || text == "false"):
		return text == "true"
	}
	return plain(value)
}

// plain converts a value of an unknown field.
//
// bound: the config
func plain(value any) any {
	if m, ok := value.(members); ok {
		object := make(map[string]any, len(m))
		for _, x := range m {
			object[x.name] = plain(x.value)
		}
		return object
	}
	if list, ok := value.([]any); ok {
		for i := range list {
			list[i] = plain(list[i])
		}
	}
	return value
}
