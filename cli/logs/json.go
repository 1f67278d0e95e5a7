package logs

import "github.com/nereid-serving/nereid/server/jsontext"

// field is a member of zerolog's JSON that follows the message.
type field struct {
	name  []byte
	value jsontext.Value
}

// appendPlain appends a value as text: a string without quotes and escapes, any other value
// unchanged.
func appendPlain(dst []byte, value jsontext.Value) []byte {
	if !value.Exists() {
		return dst
	}
	if text, err := value.Text(); err == nil {
		return text.AppendTo(dst)
	}
	return append(dst, value.Raw()...)
}

// appendList appends an array with its strings in quotes and without their escapes.
func appendList(dst []byte, list jsontext.Elements) []byte {
	dst = append(dst, '[')
	for first := true; ; first = false {
		value, ok := list.Next()
		if !ok {
			return append(dst, ']')
		}
		if !first {
			dst = append(dst, ',')
		}
		if _, err := value.Text(); err != nil {
			dst = append(dst, value.Raw()...)
		} else {
			dst = append(appendPlain(append(dst, '"'), value), '"')
		}
	}
}
