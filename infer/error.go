package infer

import (
	"errors"
	"fmt"
)

// Code classifies a failure. The numbers are those of TritonError in
// model.py and cross the wire to the stubs.
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

// String returns the text that stands before the colon where a status is
// printed, as in "Internal: <message>".
func (c Code) String() string {
	if int(c) >= len(codeNames) {
		return codeNames[Unknown]
	}
	return codeNames[c]
}

// Valid reports whether c is one of the codes above.
func (c Code) Valid() bool { return int(c) < len(codeNames) }

// Error is a failure as a client sees it: a code and one complete message.
type Error struct {
	Code    Code
	Message string
	// NoRoom is true of an Unavailable whose reason is the server's own memory for requests:
	// gRPC has a status for that.
	NoRoom bool
}

// Errorf returns an Error of the given code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message alone; clients never see the code in the text.
func (e *Error) Error() string { return e.Message }

// Status returns the printed status, "<code>: <message>", which stands in load
// failures and in the repository index.
func (e *Error) Status() string { return e.Code.String() + ": " + e.Message }

// AsError returns err as an Error: itself if it is or wraps one, else an
// Internal one with its text.
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
