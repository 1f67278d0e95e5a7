package config

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/kserve"
)

// quotedIntegers are the 64-bit fields that stay strings in a configuration's JSON form; all others
// are numbers.
var quotedIntegers = map[protoreflect.FullName]bool{
	"inference.ModelSequenceBatching.InitialState.dims":          true,
	"inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim": true,
	"inference.ModelInstanceGroup.SecondaryDevice.device_id":     true,
}

// JSON returns the JSON form of a configuration for the config endpoint and models: original names,
// fields in the order of declaration, every scalar, list and map even if empty, messages only if
// set, on one line. Maps are sorted by key.
func JSON(config *kserve.ModelConfig) []byte {
	w := &writer{}
	w.message(config.ProtoReflect())
	return w.Bytes()
}

type writer struct{ bytes.Buffer }

// bound: the config
func (w *writer) message(m protoreflect.Message) {
	w.WriteByte('{')
	first := true
	field := func(f protoreflect.FieldDescriptor) {
		if !first {
			w.WriteByte(',')
		}
		first = false
		w.string(string(f.Name()))
		w.WriteByte(':')
		w.field(f, m.Get(f))
	}
	fields := m.Descriptor().Fields()
	var chosen []protoreflect.FieldDescriptor
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.HasPresence() && !m.Has(f):
		case f.ContainingOneof() != nil && f.Message() == nil:
			chosen = append(chosen, f) // a chosen scalar comes last
		default:
			field(f)
		}
	}
	for _, f := range chosen {
		field(f)
	}
	w.WriteByte('}')
}

// bound: the config
func (w *writer) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		w.mapping(f, v.Map())
	case f.IsList():
		w.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				w.WriteByte(',')
			}
			w.value(f, v.List().Get(i))
		}
		w.WriteByte(']')
	default:
		w.value(f, v)
	}
}

// bound: the config
func (w *writer) mapping(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int {
		if f.MapKey().Kind() == protoreflect.StringKind {
			return strings.Compare(a.String(), b.String())
		}
		if a.Uint() < b.Uint() { // of priority levels
			return -1
		}
		return 1
	})
	w.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			w.WriteByte(',')
		}
		w.string(k.String())
		w.WriteByte(':')
		w.value(f.MapValue(), m.Get(k))
	}
	w.WriteByte('}')
}

func (w *writer) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	quoted := quotedIntegers[f.FullName()]
	if quoted {
		w.WriteByte('"')
		defer w.WriteByte('"')
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		w.message(v.Message())
	case protoreflect.EnumKind:
		if name := f.Enum().Values().ByNumber(v.Enum()); name != nil {
			w.string(string(name.Name()))
		} else {
			w.WriteString(strconv.FormatInt(int64(v.Enum()), 10))
		}
	case protoreflect.StringKind:
		w.string(v.String())
	case protoreflect.FloatKind:
		w.float(v.Float(), 32)
	case protoreflect.DoubleKind:
		w.float(v.Float(), 64)
	default: // booleans and integers
		w.WriteString(v.String())
	}
}

// float writes a number like Triton: with few digits if they give the value back, else with enough,
// and that decimal number then as a double.
func (w *writer) float(v float64, size int) {
	switch {
	case math.IsNaN(v):
		w.WriteString(`"NaN"`)
		return
	case math.IsInf(v, 0):
		w.WriteString(map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[v > 0]) // bound: two words
		return
	}
	few, enough, normal := 6, 9, 0x1p-126
	if size == 64 {
		few, enough, normal = 15, 17, 0x1p-1022
	}
	text := strconv.FormatFloat(v, 'g', few, size)
	// Subnormal numbers always get the digits: reading them back is out of range.
	if back, err := strconv.ParseFloat(text, size); err != nil || back != v || v != 0 && math.Abs(v) < normal {
		text = strconv.FormatFloat(v, 'g', enough, size)
	}
	if strings.ContainsAny(text, ".e") {
		text = double(text)
	} else if text == "-0" {
		text = "0"
	}
	w.WriteString(text) // bound: a number
}

// double writes the decimal number text as a double: without exponent for magnitudes from 1e-6 to
// below 1e21, and then always with a point. The decimal becomes a double by one multiplication,
// which is not always exact: the visible digits follow from it.
func double(text string) string {
	mantissa, exponent, _ := strings.Cut(text, "e")
	power, _ := strconv.Atoi(exponent)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	v, _ := strconv.ParseFloat(whole+fraction, 64)
	if power -= len(fraction); power >= 0 {
		v *= pow10(power)
	} else {
		v = v / pow10(min(-power, 308)) / pow10(max(-power-308, 0))
	}
	if size := math.Abs(v); size == 0 || size >= 1e-6 && size < 1e21 {
		text = strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	mantissa, exponent, _ = strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	power, _ = strconv.Atoi(exponent)
	return mantissa + "e" + strconv.Itoa(power)
}

// pow10 is the double nearest to a power of ten; math.Pow10 is not always.
func pow10(n int) float64 {
	v, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64)
	return v
}

// string writes a JSON string with the necessary escapes only.
//
// bound: the config
func (w *writer) string(s string) {
	const hex = "0123456789ABCDEF"
	w.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.WriteByte('\\')
			w.WriteRune(r)
		case r == '\b':
			w.WriteString(`\b`)
		case r == '\f':
			w.WriteString(`\f`)
		case r == '\n':
			w.WriteString(`\n`)
		case r == '\r':
			w.WriteString(`\r`)
		case r == '\t':
			w.WriteString(`\t`)
		case r < 0x20:
			w.WriteString(`\u00`)
			w.WriteByte(hex[r>>4])
			w.WriteByte(hex[r&15])
		default:
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}

// ReadBytes bounds the memory for reading, completing, checking and writing a config whose JSON is
// text.
func ReadBytes[T ~string | ~[]byte](text T) int64 { return sizeOf(text, 2<<10, 128) }

// KeptBytes bounds the memory of one copy of such a config, with its complete JSON.
func KeptBytes[T ~string | ~[]byte](text T) int64 { return sizeOf(text, 128, 48) }

// sizeOf estimates the memory of a config from that for an object and for any other value.
func sizeOf[T ~string | ~[]byte](text T, object, value int64) int64 {
	n := int64(len(text))
	for i := range len(text) {
		switch text[i] {
		case '{':
			n += object
		case ',', ':', '[':
			n += value
		}
	}
	return n
}
