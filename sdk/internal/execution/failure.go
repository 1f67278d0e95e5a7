package execution

import (
	"strings"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// Failure returns an author's error in the form for clients, with a valid code and in UTF-8, or
// nil. A nil *Error in an error counts as no error. The error's methods are the author's: if one
// panics, the result has no text.
func Failure(err error) (e *infer.Error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			e = infer.Errorf(infer.Internal, "the backend has failed with an error of type %T, a method of which panics", err)
		}
	}()
	e = infer.AsError(err)
	if e != nil && (!e.Code.Valid() || !utf8.ValidString(e.Message)) {
		own := *e
		own.Message = strings.ToValidUTF8(own.Message, "\uFFFD")
		if !own.Code.Valid() {
			own.Code = infer.Internal
		}
		e = &own
	}
	return e
}
