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

// This file is the door to a stub: what goes into a frame passes here, and what
// the stub could not hold or decode does not pass. A refusal is an *infer.Error,
// for the requests that the frame is about. The front ends have refused most of it
// before, by infer.Request.Check; what comes here in spite of that was made inside
// the server, or by a model.

var (
	_ [ipc.MaxRank]byte         = [infer.MaxRank]byte{}
	_ [infer.MaxTensors + 1]int = [ipc.AllOutputs]int{} // its number means all of them
)

// checkRequest checks what EXECUTE says of a request.
func checkRequest(r *infer.Request) error { return r.Check() }

// checkResponse checks what INFER_RESPONSE says of a response, and makes its error
// text one that can be sent.
//
// bound: maxErrorText
func checkResponse(r *infer.Response) (text string, err error) {
	if r.Err != nil {
		return output.CutAt(strings.ToValidUTF8(r.Err.Message, "\uFFFD"), maxErrorText), nil
	}
	if len(r.Outputs) > infer.MaxTensors {
		return "", infer.Errorf(infer.Internal, "a response of model '%s' has %d outputs, at most %d can be", r.Model, len(r.Outputs), infer.MaxTensors)
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
		return "", infer.Errorf(infer.Internal, "the parameters of a response of model '%s' have %d bytes, at most %d can be", r.Model, size, infer.MaxText)
	}
	for i := range r.Outputs {
		if rank := len(r.Outputs[i].Shape); rank > infer.MaxRank {
			return "", infer.Errorf(infer.Internal, "output '%s' of model '%s' has %d dimensions, at most %d can be", r.Outputs[i].Name, r.Model, rank, infer.MaxRank)
		}
	}
	return "", nil
}

// maxErrorText bounds the text of an error that a stub is told, in bytes.
const maxErrorText = 16 << 20

// checkNames checks the names that INITIALIZE announces.
func checkNames(inputs, outputs []string) error {
	count, size := len(inputs)+len(outputs), 0
	for _, group := range [][]string{inputs, outputs} {
		for _, name := range group {
			size += len(name)
		}
	}
	if count > maxNames || size > maxNameBytes {
		return infer.Errorf(infer.InvalidArg, "the config names %d inputs and outputs of %d bytes together, at most %d of %d bytes can be",
			count, size, maxNames, maxNameBytes)
	}
	return nil
}

// checkFields checks the strings of a body that is a map: those of a struct, also
// in lists, maps and structs inside it.
func checkFields(kind ipc.Kind, fields any) error {
	if at, text := invalidText(reflect.ValueOf(fields)); at != "" {
		return infer.Errorf(infer.InvalidArg, "%s: field '%s' is not valid UTF-8: %s", kind, at, strconv.QuoteToASCII(output.Cut(text))) // bound: a cut text
	}
	return nil
}

// invalidText finds a string that is no UTF-8, and says in which field it is.
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

// Refusal returns err as an error of what was to be sent, nil if it is one of the
// life: the channel is broken, or has been closed. Whatever else keeps a frame
// from being sent, a lack of memory above all, is no fault of the stub.
func Refusal(err error) *infer.Error {
	if err == nil || errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	var broken *ipc.ProtocolError // below the mostly nil err, as it is an allocation
	if errors.As(err, &broken) {
		return nil
	}
	return infer.AsError(err)
}
