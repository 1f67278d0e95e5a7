package config

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/kserve"
)

// otherTypes are names of data types that users know from other tools.
var otherTypes = map[string]string{
	"BYTES": "TYPE_STRING", "STR": "TYPE_STRING", "OBJECT": "TYPE_STRING", "FLOAT": "TYPE_FP32", "DOUBLE": "TYPE_FP64", "INT": "TYPE_INT32",
	"LONG": "TYPE_INT64", "BFLOAT16": "TYPE_BF16", "FLOAT16": "TYPE_FP16", "FLOAT32": "TYPE_FP32", "FLOAT64": "TYPE_FP64", "HALF": "TYPE_FP16",
}

// Remedy returns the probable intention of the author, as a sentence without its full stop, or "".
func (e *ParseError) Remedy() string {
	if value, is := strings.CutPrefix(e.Reason, "invalid value for enum type: "); is {
		return enumRemedy(strings.TrimSpace(value))
	}
	if field, is := strings.CutPrefix(e.Reason, "unknown field: "); is {
		names, field := FieldNames(), strings.TrimSpace(field)
		others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == field }) // bound: the fields
		if meant := spelling.Nearest(field, others); meant != "" {
			return "did you mean " + meant + "?"
		}
		if len(others) < len(names) {
			return "it belongs in another part of the configuration"
		}
		return "the fields are those of Triton's model_config.proto"
	}
	if m := wrongValue.FindStringSubmatch(e.Reason); m != nil {
		return valueRemedy(m[1], strings.TrimSpace(m[2]))
	}
	if m := secondOfOne.FindStringSubmatch(e.Reason); m != nil {
		return "only one of " + strings.Join(choices(m[1]), ", ") + " is allowed: remove the others" // bound: fields
	}
	if value, is := strings.CutPrefix(e.Reason, "unexpected token: "); is && strings.HasPrefix(value, `"`) {
		return "braces are required here, as in value { string_value: " + value + " }"
	}
	for _, r := range remedies {
		if strings.HasPrefix(e.Reason, r.reason) {
			return r.remedy
		}
	}
	return ""
}

// remedies are for reasons that begin with these texts. The first match counts.
var remedies = []struct{ reason, remedy string }{
	{"non-repeated field ", "it is already set above: remove one of them"},
	{"unexpected character '{'", "separate the entries of a list with commas: [ { … }, { … } ]"},
	{"unexpected character '", "a comma or a closing bracket is missing before it"},
	{"unexpected token: [", "the field has one value and not a list: remove the brackets"},
	{"unexpected token: ", "braces are required here, as in dynamic_batching { }"},
	{"missing field separator :", "write a colon between name and value, as in max_batch_size: 8"},
	{"invalid field name: //", "comments begin with #"},
	{"invalid field name: {", "config.pbtxt is not JSON: remove the outer braces and the quotes around names"},
	{"invalid field name: }", "no brace is open here"},
	{`invalid field name: "`, "write names of fields without quotes"},
	{"invalid scalar value: ]", "remove the comma before it"},
	{"invalid scalar value: ", "want a number, or a text in quotes"},
	{`invalid character '\n' in string`, "close the quote in the same line"},
}

var (
	wrongValue  = regexp.MustCompile(`^invalid value for (\w+) type: (.*)$`)
	secondOfOne = regexp.MustCompile(`, oneof ([\w.]+) is already set$`)
)

// valueRemedy is for a scalar field with a value of another type.
func valueRemedy(kind, value string) string {
	switch kind {
	case "bool":
		return "write true or false"
	case "string":
		return "put quotes around it: " + strconv.Quote(value) // bound: the config
	case "bytes", "message":
		return ""
	}
	switch {
	case strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'"):
		return "write the number without quotes"
	case strings.Trim(value, "-0123456789") == "":
		return "it is too large, or negative, for " + kind
	case strings.Contains(kind, "int"):
		return "write a whole number"
	}
	return ""
}

// choices lists the fields of a oneof, given by its full name.
//
// bound: the fields
func choices(oneof string) (fields []string) {
	eachMessage(func(m protoreflect.MessageDescriptor) {
		for i := range m.Oneofs().Len() {
			if o := m.Oneofs().Get(i); string(o.FullName()) == oneof {
				for j := range o.Fields().Len() {
					fields = append(fields, string(o.Fields().Get(j).Name()))
				}
			}
		}
	})
	return fields
}

func enumRemedy(value string) string {
	word := strings.TrimPrefix(strings.ToUpper(strings.Trim(value, `"'`)), "TYPE_") // bound: the config
	meant := otherTypes[word]
	if types := kserve.DataType(0).Descriptor().Values(); meant == "" && types.ByName(protoreflect.Name("TYPE_"+word)) != nil {
		meant = "TYPE_" + word
	}
	switch {
	case meant == "TYPE_STRING":
		return "use TYPE_STRING for strings and bytes"
	case meant == "":
		for _, name := range enumNames() {
			if strings.HasSuffix(name, "_"+word) {
				return "did you mean " + name + "?"
			}
		}
		if meant = spelling.Nearest(value, enumNames()); meant == "" {
			meant = otherTypes[spelling.Nearest(word, slices.Sorted(maps.Keys(otherTypes)))]
		}
	}
	switch {
	case meant == "":
		return ""
	case value == `"`+meant+`"`, value == "'"+meant+"'":
		return "write " + meant + ", without quotes"
	}
	return "did you mean " + meant + "?"
}

// FieldNames lists all fields of a configuration, at any depth.
//
// bound: the fields
func FieldNames() (names []string) {
	eachMessage(func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			names = append(names, string(m.Fields().Get(i).Name()))
		}
	})
	return names
}

// enumNames lists the values of all enums of a configuration.
//
// bound: the values
func enumNames() (names []string) {
	eachMessage(func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			if enum := m.Fields().Get(i).Enum(); enum != nil {
				for j := range enum.Values().Len() {
					names = append(names, string(enum.Values().Get(j).Name()))
				}
			}
		}
	})
	return names
}

// eachMessage calls f for the messages of a configuration, each once, the outer ones first.
//
// bound: the types of messages
func eachMessage(f func(protoreflect.MessageDescriptor)) {
	todo := []protoreflect.MessageDescriptor{(&kserve.ModelConfig{}).ProtoReflect().Descriptor()}
	seen := map[protoreflect.FullName]bool{}
	for len(todo) > 0 {
		m := todo[0]
		todo = todo[1:]
		if seen[m.FullName()] {
			continue
		}
		seen[m.FullName()] = true
		f(m)
		for i := range m.Fields().Len() {
			if inner := m.Fields().Get(i).Message(); inner != nil {
				todo = append(todo, inner)
			}
		}
	}
}
