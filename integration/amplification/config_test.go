package amplification

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/kserve"
)

// maxConfigNesting limits the descent into the messages of a config.
const maxConfigNesting = 5

// configForms are the configs of models with one large field, for each field of the ModelConfig
// message at any depth.
var configForms = formsInConfig(new(kserve.ModelConfig).ProtoReflect().Descriptor(), "", func(b []byte) []byte { return b }, 0)

// formsInConfig returns a form for each field of a message. wrap inserts the message at its
// position.
func formsInConfig(m protoreflect.MessageDescriptor, at string, wrap func([]byte) []byte, depth int) (list []jsonForm) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		at := at + "." + name + ": "
		put := func(value []byte) []byte { return wrap(withMember(nil, name, value)) }
		if what, value := worstOfField(f); value != nil {
			list = append(list, jsonForm{kind: at + what, make: func(size int) []byte { return put(value(size)) }})
		}
		inner, begin, end := f.Message(), "", ""
		switch {
		case f.IsMap():
			inner, begin, end = f.MapValue().Message(), `{"0":`, "}"
		case f.IsList():
			begin, end = "[", "]"
		}
		if inner != nil && depth < maxConfigNesting {
			list = append(list, formsInConfig(inner, at, func(b []byte) []byte { return put(fmt.Appendf(nil, "%s%s%s", begin, b, end)) }, depth+1)...)
		}
	}
	return list
}

// worstOfField returns a function that makes the JSON value of a field with the highest cost for
// its size. It returns nil if all values of the field are small.
func worstOfField(f protoreflect.FieldDescriptor) (what string, value func(size int) []byte) {
	switch {
	case f.IsMap():
		return "many entries", func(size int) []byte {
			b := []byte("{")
			for i := 0; len(b) < size-32; i++ {
				b = fmt.Appendf(b, `"%d":%s,`, i, emptyValue(f.MapValue()))
			}
			return append(b[:len(b)-1], '}')
		}
	case f.IsList():
		return "many elements", many("[", emptyValue(f), "]")
	case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
		return "long text", func(size int) []byte { return fmt.Appendf(nil, "%q", letters(size&^3-8)) }
	}
	return "", nil
}

// emptyValue returns the shortest JSON value of a field, or of one of its elements.
func emptyValue(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return "{}"
	case protoreflect.StringKind, protoreflect.BytesKind:
		return `""`
	case protoreflect.BoolKind:
		return "true"
	default:
		return "0"
	}
}

// formsOfConfig returns the forms of a model's config, which is JSON in a string: each value alone,
// and each of configForms.
func formsOfConfig(at string, wrap func([]byte) []byte) (list []jsonForm) {
	add := func(kind string, value func(size int) []byte) {
		list = append(list, jsonForm{kind: at + " as JSON" + kind, make: func(size int) []byte {
			text, _ := json.Marshal(string(value(size)))
			return wrap(text)
		}})
	}
	for _, v := range jsonValues {
		add(": "+v.kind, v.make)
	}
	for _, form := range configForms {
		add(form.kind, form.make)
	}
	return list
}
