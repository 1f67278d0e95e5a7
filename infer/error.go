package infer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code classifies a failure. The numbers are those of TritonError in model.py; stubs use them too.
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
	// NoRoom marks an Unavailable error caused by the server's memory limit: gRPC has a status for
	// that.
	NoRoom bool
}

// MaxEcho is the largest size of each text that an error repeats, in bytes.
const MaxEcho = 4 << 10

// Errorf returns an Error of the given code. It cuts strings, byte slices and texts of errors among
// args to MaxEcho bytes, so that a client cannot have large texts repeated to it. The message of
// another Error is not cut. If one of args is or wraps an error for lack of memory, the result is
// NoRoom too; with a code other than Unavailable it is that error alone, which says nothing about
// the data that was being read.
func Errorf(code Code, format string, args ...any) *Error {
	var full *Error
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			if len(v) > MaxEcho {
				args[i] = Cut(v, MaxEcho)
			}
		case []byte:
			if len(v) > MaxEcho {
				args[i] = []byte(Cut(v[:MaxEcho+1], MaxEcho))
			}
		case *Error:
			if v != nil && v.NoRoom {
				full = v
			}
		case error:
			var own *Error
			if errors.As(v, &own) && own != nil && own.NoRoom {
				full = own
			}
			if text := fmt.Sprint(v); len(text) > MaxEcho { // Sprint survives a panic of Error
				args[i] = Cut(text, MaxEcho)
			}
		}
	}
	if full != nil && code != Unavailable {
		return full
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), NoRoom: full != nil}
}

// Cut returns text, shortened to most bytes including an ellipsis, at a character boundary.
func Cut[T string | []byte](text T, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return string(text)
	}
	end := most - len(ellipsis)
	for end > most-len(ellipsis)-utf8.UTFMax && !utf8.RuneStart(text[end]) {
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
	return &Error{Code: e.Code, Message: e.Detail, NoRoom: e.NoRoom}
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
