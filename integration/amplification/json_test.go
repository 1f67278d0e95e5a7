package amplification

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// schema is the part of a JSON schema in an OpenAPI document that the forms are derived from.
type schema struct {
	Type       any // a name; nil: any
	Const      any
	Enum       []any
	Properties map[string]*schema
	Additional *schema `json:"additionalProperties"`
	Items      *schema
	AnyOf      []*schema `json:"anyOf"`
	Examples   []any
	Media      string `json:"contentMediaType"` // media type of a string's content
	list       bool   // may be a list of strings; other values are sent in all such members at once
}

// jsonForm is one form of a JSON body.
type jsonForm struct {
	kind string
	long bool // the reply may repeat a long string
	make func(size int) []byte
	// each makes the copies if they differ. make is then nil.
	each   func(i, size int) []byte
	copies int
}

// jsonValues are the values with the highest cost for their size.
var jsonValues = []jsonForm{
	{kind: "empty strings", make: many("[", `""`, "]")},
	{kind: "empty objects", make: many("[", "{}", "]")},
	{kind: "empty arrays", make: many("[", "[]", "]")},
	{kind: "numbers", make: many("[", "1", "]")},
	{kind: "nested without end", make: func(size int) []byte {
		return append(bytes.Repeat([]byte("["), size/2), bytes.Repeat([]byte("]"), size/2)...)
	}},
	{kind: "nested arrays", make: many("[", strings.Repeat("[", 90)+strings.Repeat("]", 90), "]")},
	{kind: "nested around texts", make: many("[", strings.Repeat("[", 90)+`"`+strings.Repeat("m", 1000)+`"`+strings.Repeat("]", 90), "]")},
	{kind: "nested deeper around texts", make: many("[", strings.Repeat("[", 990)+`"`+strings.Repeat("m", 1000)+`"`+strings.Repeat("]", 990), "]")},
	{kind: "nested objects", make: many("[", strings.Repeat(`{"":`, 90)+"0"+strings.Repeat("}", 90), "]")},
	{kind: "deep indentation", make: func(size int) []byte {
		var b bytes.Buffer
		indented(&b, 80, size)
		return b.Bytes()
	}},
	{kind: "the same key", make: many("{", `"":0`, "}")},
	{kind: "short keys", make: func(size int) []byte {
		b := []byte("{")
		for i := 0; len(b) < size-32; i++ {
			b = fmt.Appendf(b, `"%x":0,`, i)
		}
		return append(b, `"":0}`...)
	}},
	{kind: "long key", make: func(size int) []byte { return fmt.Appendf(nil, `{"%s":0}`, letters(size-8)) }},
	{kind: "long text", long: true, make: func(size int) []byte { return fmt.Appendf(nil, `"%s"`, letters(size-8)) }},
	{kind: "escaped text", make: func(size int) []byte { return fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte(`\u0001`), size/6)) }},
	{kind: "long number", make: func(size int) []byte { return bytes.Repeat([]byte("1"), size) }},
	{kind: "white space", make: func(size int) []byte { return append(bytes.Repeat([]byte(" "), size-4), "null"...) }},
}

// many returns a function that makes a list of one repeated element.
func many(begin, element, end string) func(size int) []byte {
	return func(size int) []byte {
		n := max(1, size/(len(element)+1))
		b := append(make([]byte, 0, size+256), begin...)
		b = append(b, element...)
		return append(append(b, bytes.Repeat([]byte(","+element), n-1)...), end...)
	}
}

// indented writes nested arrays with each element on its own line.
func indented(b *bytes.Buffer, depth, size int) {
	for level := range depth {
		b.WriteString("[\n" + strings.Repeat("    ", level+1))
	}
	line := "0,\n" + strings.Repeat("    ", depth)
	for b.Len() < size-depth*200 {
		b.WriteString(line)
	}
	b.WriteString("0" + strings.Repeat("]", depth))
}

// formsOfSchema returns each value at each position of a schema. wrap inserts a value at its
// position.
func formsOfSchema(s *schema, at string, wrap func([]byte) []byte, depth int) (list []jsonForm) {
	for i, v := range jsonValues {
		if s.takes(i, depth, at) {
			list = append(list, jsonForm{kind: at + ": " + v.kind, long: v.long, make: func(size int) []byte { return wrap(v.make(size)) }})
		}
	}
	if s.Media == "application/json" {
		list = append(list, formsOfConfig(at, wrap)...)
	}
	if depth >= maxNesting {
		return list
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	for i, v := range jsonValues {
		if depth > 0 || len(names) < 2 {
			break
		}
		list = append(list, jsonForm{kind: "all members: " + jsonValues[i].kind, make: func(size int) []byte {
			b := []byte("{")
			for _, name := range names {
				value := v.make(size / len(names))
				if example, ok := s.example().(map[string]any)[name]; ok && len(s.Examples) > 0 {
					value, _ = json.Marshal(example)
				}
				b = append(append(fmt.Appendf(b, "%q:", name), value...), ',')
			}
			b[len(b)-1] = '}'
			return wrap(b)
		}})
	}
	for _, name := range names {
		others := map[string]any{}
		if example, ok := s.example().(map[string]any); ok {
			maps.Copy(others, example)
		}
		delete(others, name)
		list = append(list, formsOfSchema(s.Properties[name], at+"."+name, func(b []byte) []byte { return wrap(withMember(others, name, b)) }, depth+1)...)
	}
	switch {
	case s.Additional != nil:
		list = append(list, formsOfSchema(s.Additional, at+"{}", func(b []byte) []byte { return wrap(withMember(nil, "file:1/m", b)) }, depth+1)...)
	case s.Type == "object" && s.Properties == nil:
		list = append(list, knownParameters(at, wrap))
		list = append(list, formsOfSchema(&schema{}, at+"{}", func(b []byte) []byte { return wrap(withMember(nil, "m", b)) }, maxNesting)...)
	case s.Type == "array" && s.Items == nil:
		list = append(list, formsOfSchema(&schema{}, at+"[]", func(b []byte) []byte { return wrap(slices.Concat([]byte("["), b, []byte("]"))) }, maxNesting)...)
	}
	if s.Items != nil {
		list = append(list, formsOfSchema(s.Items, at+"[]", func(b []byte) []byte { return wrap(slices.Concat([]byte("["), b, []byte("]"))) }, depth+1)...)
	}
	for _, one := range s.AnyOf {
		if one.Properties != nil || one.Items != nil {
			list = append(list, formsOfSchema(one, at, wrap, depth+1)[len(jsonValues):]...)
		}
	}
	return list
}

// knownParameters returns a form with one variant for each known parameter and kind of value.
func knownParameters(at string, wrap func([]byte) []byte) jsonForm {
	names := parameterNames()
	values := []func(size int) []byte{
		func(int) []byte { return []byte("true") },
		func(int) []byte { return strconv.AppendInt(nil, math.MaxInt64, 10) },
		func(size int) []byte { return fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte(`\u0001`), size/6)) },
	}
	return jsonForm{kind: at + "{}: known parameters", copies: len(names) * len(values), each: func(i, size int) []byte {
		return wrap(withMember(nil, names[i%len(names)], values[i/len(names)%len(values)](size)))
	}}
}

// takes reports whether the i-th value is sent at a position. Positions that allow lists and
// objects get all values. Other and deeply nested positions get a few, which vary by position.
func (s *schema) takes(i, depth int, at string) bool {
	simple := s.Const != nil || len(s.Enum) > 0 || s.Type == "string" || s.Type == "boolean" || s.Type == "integer" || s.Type == "number"
	if s.list {
		return i == 0
	}
	anything := s.Type == nil && !simple && len(s.AnyOf) == 0
	return !simple && depth < 2 || anything && depth < maxNesting || jsonValues[i].long || (i+len(at))%7 == 0
}

// withMember returns an object with the given members and one more.
func withMember(others map[string]any, name string, value []byte) []byte {
	b := []byte("{")
	for _, other := range slices.Sorted(maps.Keys(others)) {
		text, _ := json.Marshal(others[other])
		b = append(fmt.Appendf(b, "%q:", other), text...)
		b = append(b, ',')
	}
	b = append(fmt.Appendf(b, "%q:", name), value...)
	return append(b, '}')
}

// example returns a small valid value of a schema.
func (s *schema) example() any {
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return s.AnyOf[0].example()
	}
	switch s.Type {
	case "object":
		o := map[string]any{}
		for name, p := range s.Properties {
			o[name] = p.example()
		}
		return o
	case "array":
		if s.Items == nil {
			return []any{}
		}
		return []any{s.Items.example()}
	case "integer", "number":
		return 1
	case "boolean":
		return false
	default:
		return "a"
	}
}

// document is an OpenAPI document.
type document struct {
	Paths map[string]map[string]operation
}

type operation struct {
	Body *struct {
		Content map[string]struct{ Schema *schema }
	} `json:"requestBody"`
}

// endpoint is one method of an HTTP path, with the schema of its body.
type endpoint struct {
	front, method, path string
	schema              *schema
	media               []string // media types of bodies that are the bytes of a tensor
	binary              string   // prefix of the header for bodies with binary tensors
	form                bool     // takes a browser's form
}

func (e *endpoint) entry() string { return e.front + " " + e.method + " " + e.path }

// described returns the endpoints of an OpenAPI document.
func described(text []byte) (list []endpoint, err error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			e := endpoint{front: "REST", method: strings.ToUpper(method), path: path}
			e.binary = binaryMark(e.front)
			if op.Body != nil {
				e.schema = op.Body.Content["application/json"].Schema
				delete(op.Body.Content, "application/json")
				e.media = slices.Sorted(maps.Keys(op.Body.Content))
			}
			list = append(list, e)
		}
	}
	return list, nil
}

// attacksOverHTTP returns the attacks on an endpoint. seen holds the messages already sent to other
// endpoints.
func attacksOverHTTP(to *target, e endpoint, seen map[string]bool) (list []attack) {
	address := to.Addresses[e.front]
	path := strings.NewReplacer("{model}", modelOf(e.path), "{hash}", hashedModel, "{region}", "r").Replace(e.path)
	base := attack{Entry: e.entry(), send: overHTTP(address, e.method, path)}
	if e.form {
		base.send = overHTTP(address, e.method, path, "Origin: http://127.0.0.1", "Content-Type: multipart/form-data; boundary="+boundary)
	}
	add := func(kind string, change func(a *attack)) {
		a := base
		a.Kind = kind
		change(&a)
		list = append(list, a)
	}
	var good func(int) []byte
	if e.schema != nil {
		text, _ := json.Marshal(e.schema.example())
		good = func(int) []byte { return text }
	}
	add("a good request", func(a *attack) { a.body, a.Volleys = good, []volley{{1, 0}} })
	add("replies that are not read", func(a *attack) { a.body, a.Volleys, a.unread = good, []volley{{64, 0}}, true })
	half := func(kind, beginning string) {
		add(kind, func(a *attack) { a.send, a.Volleys = halfHTTP(address, beginning, halfRequests), []volley{{1, 0}} })
	}
	if e.method == "POST" {
		half("half a body", httpHead(e.method, path)+"Content-Length: 1000000\r\n\r\n{")
	} else {
		half("half a head", partialHead(e.method, path, 8<<10))
	}
	if strings.Contains(e.path, "{") {
		long := e.path[:strings.Index(e.path, "{")] + segment(7<<10)
		_, rest, _ := strings.Cut(e.path, "}")
		add("a long name", func(a *attack) {
			a.body, a.Volleys, a.send, a.unread = good, []volley{{128, 0}}, overHTTP(address, e.method, long+rest), true
		})
	}
	s := e.schema
	if s == nil {
		s = &schema{}
	}
	if e.method != "POST" { // the server never reads the body
		add("a body", func(a *attack) { a.body, a.Volleys = jsonValues[0].make, bodyVolleys })
		return list
	}
	known := fmt.Sprint(e.path, slices.Sorted(maps.Keys(s.Properties)))
	again := seen[known]
	seen[known] = true
	for i, form := range formsOfSchema(s, "", func(b []byte) []byte { return b }, 0) {
		if form.each != nil {
			add(form.kind, func(a *attack) { a.each, a.Volleys = form.each, []volley{{form.copies, parameterBytes}} })
			continue
		}
		if few(i, again) {
			continue
		}
		add(form.kind, func(a *attack) { a.body, a.Volleys, a.coded = form.make, bodyVolleys, true })
		if form.long {
			add(form.kind+", unread", func(a *attack) { a.body, a.Volleys, a.unread = form.make, unreadVolleys, true })
		}
	}
	if e.form {
		again := seen["forms"]
		seen["forms"] = true
		for i, form := range slices.Concat(browserForms, formsOfFields(to.Token)) {
			if few(i, again) {
				continue
			}
			add(form.kind, func(a *attack) { a.body, a.Volleys = form.make, bodyVolleys })
		}
	}
	if s.Properties["inputs"] != nil {
		list = append(list, attacksOfTensors(address, path, e)...)
	}
	add("small chunks", func(a *attack) { a.body, a.pieces, a.Volleys = jsonValues[0].make, 16, []volley{{2, largeBody / 8}} })
	return list
}

// attacksOfTensors returns attacks whose bodies are the bytes of a tensor, alone or after JSON.
func attacksOfTensors(address, path string, e endpoint) (list []attack) {
	contents := map[string]func(size int) []byte{
		"one text": func(size int) []byte {
			return append(binary.LittleEndian.AppendUint32(nil, uint32(size-4)), letters(size-4)...)
		},
		"empty texts": func(size int) []byte { return make([]byte, size&^3) },
	}
	add := func(kind, header string, unread bool, body func(size int) []byte) {
		a := attack{Entry: e.entry(), Kind: kind, send: overHTTP(address, e.method, path, header), body: body, Volleys: bodyVolleys, coded: true}
		list = append(list, a)
		if a.Kind, a.Volleys, a.coded, a.unread = kind+", unread", unreadVolleys, false, true; unread {
			list = append(list, a)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(contents)) {
		for _, media := range e.media {
			add(media+": "+kind, "Content-Type: "+strings.ReplaceAll(media, "*", "x"), true, contents[kind])
		}
		for _, reply := range []bool{false, true} {
			add(fmt.Sprintf("binary, replied %v: %s", reply, kind), e.binary+strconv.Itoa(headBytes), true, func(size int) []byte {
				data := contents[kind](size)
				head := fmt.Sprintf(`{"parameters":{"binary_data_output":%v},"inputs":[{"name":%q,"datatype":%q,"shape":[%d],"parameters":{"binary_data_size":%d}}]}`,
					reply, textInput, dataTypeOf(path), elementsOf(path, kind, len(data)), len(data))
				return append(fmt.Appendf(nil, "%-*s", headBytes, head), data...)
			})
		}
	}
	for _, v := range jsonValues {
		add("inputs before tensors: "+v.kind, e.binary+strconv.Itoa(headBytes), false, func(size int) []byte {
			head := withMember(nil, "inputs", v.make(headBytes-1<<10))
			return append(fmt.Appendf(nil, "%-*.*s", headBytes, headBytes, head), letters(size)...)
		})
	}
	return list
}

// headBytes is the length of the JSON before binary tensors.
const headBytes = 64 << 10

func dataTypeOf(path string) string {
	if strings.Contains(path, numbers) {
		return "FP32"
	}
	return "BYTES"
}

// elementsOf returns the number of elements of a tensor of size bytes.
func elementsOf(path, kind string, size int) int {
	if kind == "one text" && !strings.Contains(path, numbers) {
		return 1
	}
	return size / 4
}
