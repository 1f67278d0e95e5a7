package amplification

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/kserve"
)

// services returns the services of all protobuf files.
func services() (list []protoreflect.ServiceDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{kserve.File_grpc_service_proto, grpc_health_v1.File_grpc_health_v1_health_proto} {
		for i := range file.Services().Len() {
			list = append(list, file.Services().Get(i))
		}
	}
	return list
}

// methods returns the methods of all services, keyed by the entry names of attacks.
func methods() map[string]protoreflect.MethodDescriptor {
	list := map[string]protoreflect.MethodDescriptor{}
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			list["gRPC "+string(m.Name())] = m
		}
	}
	return list
}

// messageForm is one form of a large or expensive message.
type messageForm struct {
	kind string
	long bool // the reply may repeat a long string
	make func(size int) []byte
	// each makes the copies if they differ. make is then nil.
	each   func(i, size int) []byte
	copies int
}

// maxNesting limits the descent into recursive messages.
const maxNesting = 8

// formsOf returns the forms of a message: each of its fields, at any depth, in each form that its
// type allows. wrap inserts the encoded message at its position.
func formsOf(m protoreflect.MessageDescriptor, at string, wrap func([]byte) []byte, depth int) (list []messageForm) {
	add := func(kind string, element func(i int) []byte) {
		list = append(list, messageForm{kind: at + kind, make: func(size int) []byte { return wrap(fill(size, element)) }})
	}
	const unknown = protowire.Number(19)
	add(": unknown fields", func(int) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, unknown, protowire.VarintType), 0)
	})
	add(": unknown groups", func(int) []byte {
		const nested = 64
		return append(bytes.Repeat(protowire.AppendTag(nil, unknown, protowire.StartGroupType), nested),
			bytes.Repeat(protowire.AppendTag(nil, unknown, protowire.EndGroupType), nested)...)
	})
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := at + "." + string(f.Name())
		for _, form := range formsOfField(f) {
			if form.one == nil {
				form.one = func(size int) []byte { return fill(size, form.element) }
			}
			list = append(list, messageForm{kind: name + ": " + form.kind, long: form.long, make: func(size int) []byte { return wrap(form.one(size)) }})
		}
		if f.IsMap() && f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.MessageKind {
			list = append(list, knownValues(f, name, wrap))
		}
		if depth == maxNesting {
			continue
		}
		switch inner, tag := f, f.Number(); {
		case f.IsMap() && f.MapValue().Kind() == protoreflect.MessageKind:
			list = append(list, formsOf(f.MapValue().Message(), name+"{}", func(b []byte) []byte {
				return wrap(field(tag, append(exampleKey(f.MapKey(), 0), field(2, b)...)))
			}, depth+1)...)
		case !f.IsMap() && inner.Kind() == protoreflect.MessageKind:
			if f.IsList() {
				name += "[]"
			}
			list = append(list, formsOf(inner.Message(), name, func(b []byte) []byte { return wrap(field(tag, append(exampleName(f), b...))) }, depth+1)...)
		}
	}
	return list
}

// formsOfOutputs combines each known parameter with an output of many numbers, because a parameter
// may determine the output's size.
func formsOfOutputs(method protoreflect.MethodDescriptor) (list []messageForm) {
	many := manyNumbers(method)
	if many == nil {
		return nil
	}
	outputs := method.Input().Fields().ByName("outputs")
	wrap := func(b []byte) []byte {
		return append(many[:len(many):len(many)], field(outputs.Number(), append(exampleName(outputs), b...))...)
	}
	form := knownValues(outputs.Message().Fields().ByName("parameters"), ".outputs[].parameters", wrap)
	names := parameterNames()
	const times = 8 // for each kind of value
	for at, name := range names {
		list = append(list, messageForm{kind: form.kind + ": " + name + " of many numbers", copies: times * form.copies / len(names), each: func(i, size int) []byte {
			return form.each(at+i*len(names), size)
		}})
	}
	return list
}

// knownValues returns a form with one variant for each known parameter and kind of value.
func knownValues(f protoreflect.FieldDescriptor, at string, wrap func([]byte) []byte) messageForm {
	names, kinds := parameterNames(), f.MapValue().Message().Fields()
	return messageForm{kind: at + "{}: known parameters", copies: len(names) * kinds.Len(), each: func(i, size int) []byte {
		name, kind := names[i%len(names)], kinds.Get(i/len(names)%kinds.Len())
		value := protowire.AppendVarint(protowire.AppendTag(nil, kind.Number(), protowire.VarintType), math.MaxInt32)
		switch kind.Kind() {
		case protoreflect.StringKind, protoreflect.BytesKind:
			value = field(kind.Number(), controls(size))
		case protoreflect.DoubleKind:
			value = scalar(kind.Number(), kind.Kind())
		}
		return wrap(field(f.Number(), append(field(1, []byte(name)), field(2, value)...)))
	}}
}

// exampleName returns the beginning of an output's message: its name.
func exampleName(f protoreflect.FieldDescriptor) []byte {
	if f.Name() != "outputs" || f.Message().Fields().ByName("name") == nil {
		return nil
	}
	return field(f.Message().Fields().ByName("name").Number(), []byte(textOutput))
}

// fieldForm is a form of one field: one value of any size, or many elements.
type fieldForm struct {
	kind    string
	long    bool // as in messageForm
	element func(i int) []byte
	one     func(size int) []byte
}

func formsOfField(f protoreflect.FieldDescriptor) (list []fieldForm) {
	n := f.Number()
	texts := func(kind protoreflect.Kind) bool {
		return kind == protoreflect.StringKind || kind == protoreflect.BytesKind
	}
	switch {
	case f.IsMap():
		key, value := f.MapKey(), f.MapValue()
		list = append(list,
			fieldForm{kind: "empty entries", element: func(int) []byte { return field(n, nil) }},
			fieldForm{kind: "short keys", element: func(i int) []byte { return field(n, exampleKey(key, i)) }})
		if value.Kind() == protoreflect.MessageKind {
			list = append(list, fieldForm{kind: "short keys with values", element: func(i int) []byte { return field(n, append(exampleKey(key, i), field(2, nil)...)) }})
		}
		if texts(key.Kind()) {
			list = append(list, fieldForm{kind: "long key", long: true, one: func(size int) []byte { return field(n, field(1, letters(size))) }})
		}
		if texts(value.Kind()) {
			list = append(list, fieldForm{kind: "long value", long: true, one: func(size int) []byte { return field(n, append(exampleKey(key, 0), field(2, controls(size))...)) }})
		}
	case f.Kind() == protoreflect.MessageKind, texts(f.Kind()):
		list = append(list, fieldForm{kind: "empty elements", element: func(int) []byte { return field(n, nil) }})
		if texts(f.Kind()) {
			list = append(list,
				fieldForm{kind: "short elements", element: func(int) []byte { return field(n, []byte("m")) }},
				fieldForm{kind: "long text", long: true, one: func(size int) []byte { return field(n, letters(size)) }})
		}
	default:
		list = append(list, fieldForm{kind: "elements", element: func(int) []byte { return scalar(n, f.Kind()) }})
		if f.IsList() {
			list = append(list, fieldForm{kind: "packed elements", one: func(size int) []byte { return field(n, make([]byte, size&^7)) }})
		}
	}
	return list
}

// fill repeats an element until it has about size bytes.
func fill(size int, element func(i int) []byte) []byte {
	b := make([]byte, 0, size)
	for i := 0; len(b) < size-16; i++ {
		b = append(b, element(i)...)
	}
	return b
}

// field encodes a bytes field.
func field(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(make([]byte, 0, len(b)+16), n, protowire.BytesType), b)
}

func scalar(n protowire.Number, kind protoreflect.Kind) []byte {
	switch kind {
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(protowire.AppendTag(nil, n, protowire.Fixed32Type), 0)
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(protowire.AppendTag(nil, n, protowire.Fixed64Type), 0)
	default:
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), 0)
	}
}

// exampleKey encodes the i-th key of a map as a field of its entry.
func exampleKey(key protoreflect.FieldDescriptor, i int) []byte {
	if key.Kind() == protoreflect.StringKind {
		return field(1, fmt.Appendf(nil, "%x", i))
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(i))
}

// controls returns n control characters, which are six times as long in JSON.
func controls(n int) []byte { return bytes.Repeat([]byte{1}, n) }

func letters(n int) []byte { return bytes.Repeat([]byte("m"), n) }

// exampleMessage returns a valid message for a method, with the name of a model and the tensors of
// an inference.
func exampleMessage(method protoreflect.MethodDescriptor) []byte {
	return messageTo(method, modelOf(string(method.Name())), "BYTES", []byte("\x01\x00\x00\x00a"), 1)
}

// manyNumbers returns exampleMessage with a large numeric tensor, or nil if the method takes no
// tensors.
func manyNumbers(method protoreflect.MethodDescriptor) []byte {
	if method.Input().Fields().ByName("inputs") == nil {
		return nil
	}
	const count = 256 << 10
	return messageTo(method, numbers, "FP32", make([]byte, 4*count), count)
}

// messageTo returns a valid message about a model, with a tensor if the method takes tensors.
func messageTo(method protoreflect.MethodDescriptor, model, dataType string, data []byte, elements uint64) (b []byte) {
	m := method.Input()
	for i := range m.Fields().Len() {
		switch f := m.Fields().Get(i); f.Name() {
		case "model_name", "name":
			b = append(b, field(f.Number(), []byte(model))...)
		case "inputs":
			e := f.Message().Fields()
			b = append(b, field(f.Number(), bytes.Join([][]byte{
				field(e.ByName("name").Number(), []byte(textInput)), field(e.ByName("datatype").Number(), []byte(dataType)),
				field(e.ByName("shape").Number(), protowire.AppendVarint(nil, elements)),
			}, nil))...)
		case "raw_input_contents":
			b = append(b, field(f.Number(), data)...)
		}
	}
	return b
}

// modelOf returns the model for an RPC or a path. Loads and unloads use a separate model.
func modelOf(call string) string {
	for _, word := range []string{"repository", "load", "instances"} {
		if strings.Contains(strings.ToLower(call), word) {
			return spareModel
		}
	}
	return goodModel
}

// attacksOverGRPC returns the attacks on every method, and adds the messages that they send to
// seen.
func attacksOverGRPC(address string, seen map[string]bool) (list []attack) {
	all := methods()
	for _, entry := range slices.Sorted(maps.Keys(all)) {
		method := all[entry]
		path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		good := exampleMessage(method)
		base := attack{Entry: entry, send: overGRPC(address, path), body: func(int) []byte { return good }}
		add := func(kind string, change func(a *attack)) {
			a := base
			a.Kind = kind
			change(&a)
			list = append(list, a)
		}
		add("a good call", func(a *attack) { a.Volleys = []volley{{1, len(good)}} })
		add("replies that are not read", func(a *attack) { a.Volleys, a.unread = []volley{{64, len(good)}}, true })
		add("calls without a message", func(a *attack) { a.Volleys, a.send, a.body = []volley{{3, 0}}, halfGRPC(address, path, halfCalls), nil })
		if method.IsStreamingClient() {
			for _, unread := range []bool{false, true} {
				add(fmt.Sprintf("many messages, unread: %v", unread), func(a *attack) {
					a.Volleys, a.unread, a.send = []volley{{4, len(good)}}, unread, messagesOverGRPC(address, path, largeBody/8)
				})
			}
		}
		known := string(method.Input().FullName())
		again := seen[known]
		seen[known] = true
		for i, form := range formsOf(method.Input(), "", func(b []byte) []byte { return append(good[:len(good):len(good)], b...) }, 0) {
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
		for _, form := range formsOfOutputs(method) {
			add(form.kind, func(a *attack) { a.each, a.Volleys, a.unread = form.each, []volley{{form.copies, 64}}, true })
		}
		add("small frames", func(a *attack) {
			a.body, a.pieces, a.Volleys = func(size int) []byte { return append(good[:len(good):len(good)], field(15, letters(size))...) }, 16, []volley{{2, largeBody / 8}}
		})
	}
	return list
}
