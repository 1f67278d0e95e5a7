package infer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code classifies a failure. Stubs and TritonError in model.py use the same numbers.
type Code uint8

// The codes. The front ends map them to statuses: httpStatus in server/rest, statusOf in
// server/grpc.
const (
	Unknown       Code = 0
	Internal      Code = 1
	NotFound      Code = 2
	InvalidArg    Code = 3
	Unavailable   Code = 4
	Unsupported   Code = 5
	AlreadyExists Code = 6
	Cancelled     Code = 7
)

var codeNames = [...]string{
	Unknown:       "Unknown",
	Internal:      "Internal",
	NotFound:      "Not found",
	InvalidArg:    "Invalid argument",
	Unavailable:   "Unavailable",
	Unsupported:   "Unsupported",
	AlreadyExists: "Already exists",
	Cancelled:     "Cancelled",
}

// String returns the text before the colon of a printed status, as in "Internal: <message>".
func (c Code) String() string {
	if int(c) >= len(codeNames) {
		return codeNames[Unknown]
	}
	return codeNames[c]
}

// Valid reports whether c is one of the codes above.
func (c Code) Valid() bool { return int(c) < len(codeNames) }

// Error is a failure as clients see it: a code and a complete message.
type Error struct {
	Code    Code
	Message string
	// Detail is the message for logs and operators, with data that clients must not see, such as
	// paths. "" means that it equals Message.
	Detail string
	// OutOfMemory marks an Unavailable error caused by the server's memory limit: gRPC has a status
	// for that.
	OutOfMemory bool
}

// MaxEcho is the largest size of all texts that an error repeats, in bytes of their JSON.
const MaxEcho = 4 << 10

// Errorf returns an Error of the given code. If the strings, byte slices and texts of errors among
// args take more than MaxEcho bytes together, it cuts the longest, so that a client cannot make the
// server repeat large texts. The message of another Error is not cut. If one of args is or wraps an
// OutOfMemory error, the result is OutOfMemory too. With a code other than Unavailable, Errorf
// returns that error unchanged, because the data that was being read is not at fault.
func Errorf(code Code, format string, args ...any) *Error {
	full := outOfMemory(args)
	if full != nil && code != Unavailable {
		return full
	}
	shorten(args)
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), OutOfMemory: full != nil}
}

// outOfMemory returns the last error for lack of memory among args, or nil.
func outOfMemory(args []any) (full *Error) {
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			var own *Error
			if errors.As(err, &own) && own != nil && own.OutOfMemory {
				full = own
			}
		}
	}
	return full
}

// shorten cuts the longest texts among args to a share of MaxEcho or more, so that all of them take
// at most MaxEcho bytes.
func shorten(args []any) {
	sizes := make([]int, 0, 8) // bound: the arguments of a format
	total, texts := 0, 0
	for _, arg := range args {
		text, ok := echo(arg)
		size := 0
		if ok {
			size = jsonBytes(text)
			texts++
		}
		sizes = append(sizes, size)
		total += size
	}
	for total > MaxEcho {
		at, longest := 0, 0
		for i, size := range sizes {
			if size > longest {
				at, longest = i, size
			}
		}
		text, _ := echo(args[at])
		text = cutJSON(text, max(MaxEcho/texts, longest-(total-MaxEcho)))
		args[at], sizes[at] = text, 0 // it is not cut again
		total += jsonBytes(text) - longest
	}
}

// echo returns the text of an argument that may be cut, or its beginning if it is too long anyway.
func echo(arg any) (text string, ok bool) {
	switch v := arg.(type) {
	case string:
		return v, true
	case []byte:
		return string(v[:min(len(v), MaxEcho+1)]), true // bound: MaxEcho
	case *Error:
		return "", false
	case error:
		return fmt.Sprint(v), true // which survives a panic of Error
	}
	return "", false
}

// jsonBytes returns the bytes that a text takes in JSON, or a number above MaxEcho.
func jsonBytes(text string) (n int) {
	for i := 0; i < len(text) && n <= MaxEcho; i++ {
		n += escaped(text[i])
	}
	return n
}

// escaped returns the bytes that a byte takes in JSON.
func escaped(c byte) int {
	switch c {
	case '"', '\\', '\b', '\f', '\n', '\r', '\t':
		return 2
	}
	if c < ' ' {
		return len(`\u0000`)
	}
	return 1
}

// cutJSON is Cut by the bytes that the text takes in JSON, which must be more than most.
func cutJSON(text string, most int) string {
	end, n := 0, len(ellipsis)
	for n += escaped(text[end]); n <= most; n += escaped(text[end]) {
		end++
	}
	return upTo(text, end)
}

const ellipsis = "…"

// Cut returns text, shortened to most bytes including an ellipsis, at a character boundary.
func Cut[T string | []byte](text T, most int) string {
	if len(text) <= most {
		return string(text)
	}
	return upTo(text, most-len(ellipsis))
}

// upTo returns the characters before an offset in a text, and an ellipsis.
func upTo[T string | []byte](text T, end int) string {
	for least := end - utf8.UTFMax; end > 0 && end > least && !utf8.RuneStart(text[end]); {
		end--
	}
	return string(text[:end]) + ellipsis
}

// Error returns the message alone; clients never see the code in the text.
func (e *Error) Error() string { return e.Message }

// Status returns the printed status, "<code>: <message>", for load failures and the repository
// index.
func (e *Error) Status() string { return e.Code.String() + ": " + e.Message }

// Detailed returns the error for operators.
func (e *Error) Detailed() *Error {
	if e.Detail == "" {
		return e
	}
	return &Error{Code: e.Code, Message: e.Detail, OutOfMemory: e.OutOfMemory}
}

// Detail returns the text of an error for operators.
func Detail(err error) string {
	var e *Error
	if !errors.As(err, &e) || e.Detail == "" {
		return err.Error()
	}
	return strings.Replace(err.Error(), e.Message, e.Detail, 1) // more text may precede the error; bound: texts that the server has made
}

// AsError returns err as an Error: the one it is or wraps, otherwise an Internal one with its text.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: err.Error()}
}
