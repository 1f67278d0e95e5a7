package frames

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// This file is the door to a stub: everything that goes into a frame passes through it, and data
// that the stub could not hold or decode is rejected. A rejection is an *infer.Error for the
// requests of the frame. The front ends reject most of it earlier, by infer.Request.Check; the rest
// comes from the server itself or from a model.

var (
	_ [ipc.MaxRank]byte         = [infer.MaxRank]byte{}
	_ [infer.MaxTensors + 1]int = [ipc.AllOutputs]int{} // this number stands for all of them
)

// checkResponse checks a response for INFER_RESPONSE and makes its error text encodable.
//
// bound: maxErrorText
func checkResponse(r *infer.Response) (text string, err error) {
	if r.Err != nil {
		return output.CutAt(strings.ToValidUTF8(r.Err.Message, "\uFFFD"), maxErrorText), nil
	}
	if len(r.Outputs) > infer.MaxTensors {
		return "", infer.Errorf(infer.Internal, "a response of model '%s' has %d outputs, at most %d are allowed", r.Model, len(r.Outputs), infer.MaxTensors)
	}
	size := 0
	for i := range r.Parameters {
		p := &r.Parameters[i]
		if !utf8.ValidString(p.Name) || !utf8.ValidString(p.String) {
			return "", infer.Errorf(infer.Internal, "parameter %s of a response of model '%s' is not valid UTF-8", strconv.QuoteToASCII(output.Cut(p.Name)), r.Model)
		}
		size += len(p.Name) + len(p.String)
	}
	if size > infer.MaxText {
		return "", infer.Errorf(infer.Internal, "the parameters of a response of model '%s' have %d bytes, at most %d are allowed", r.Model, size, infer.MaxText)
	}
	for i := range r.Outputs {
		if rank := len(r.Outputs[i].Shape); rank > infer.MaxRank {
			return "", infer.Errorf(infer.Internal, "output '%s' of model '%s' has %d dimensions, at most %d are allowed", r.Outputs[i].Name, r.Model, rank, infer.MaxRank)
		}
	}
	return "", nil
}

// maxErrorText limits an error text for a stub, in bytes.
const maxErrorText = 16 << 20

// checkNames checks the names for INITIALIZE.
func checkNames(inputs, outputs []string) error {
	count, size := len(inputs)+len(outputs), 0
	for _, group := range [][]string{inputs, outputs} {
		for _, name := range group {
			size += len(name)
		}
	}
	if count > maxNames || size > maxNameBytes {
		return infer.Errorf(infer.InvalidArg, "the config names %d inputs and outputs of %d bytes together, at most %d of %d bytes are allowed",
			count, size, maxNames, maxNameBytes)
	}
	return nil
}

// checkFields checks the strings of a body that is a map: those of a struct, including lists, maps
// and structs inside it.
func checkFields(kind ipc.Kind, fields any) error {
	if at, text := invalidText(reflect.ValueOf(fields)); at != "" {
		return infer.Errorf(infer.InvalidArg, "%s: field '%s' is not valid UTF-8: %s", kind, at, strconv.QuoteToASCII(output.Cut(text))) // bound: a cut text
	}
	return nil
}

// invalidText finds a string that is not UTF-8 and the name of its field.
func invalidText(v reflect.Value) (field, text string) {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return "text", v.String()
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return invalidText(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field, text := invalidText(v.Field(i)); field != "" {
				f := v.Type().Field(i)
				if name := f.Tag.Get("msgpack"); name != "" {
					return name, text
				}
				return field, text
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if field, text := invalidText(v.Index(i)); field != "" {
				return field, text
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if field, text := invalidText(key); field != "" {
				return field, text
			}
			if field, text := invalidText(value); field != "" {
				return field, text
			}
		}
	}
	return "", ""
}

// Refusal returns err as an error of the data to be sent. It returns nil if err ends the life: the
// channel is broken or closed. Any other reason, such as a lack of memory, is not the stub's fault.
func Refusal(err error) *infer.Error {
	if err == nil || errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	var broken *ipc.ProtocolError // declared after the check of err, which is usually nil, because it is an allocation
	if errors.As(err, &broken) {
		return nil
	}
	return infer.AsError(err)
}
