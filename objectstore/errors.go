package objectstore

import (
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/infer"
)

// Errors that callers distinguish by errors.Is. Other errors, such as malformed names, match none
// of them.
var (
	// ErrChanged: the object is not the listed version. List again.
	ErrChanged = errors.New("the object has changed")
	// ErrDenied: the store refuses the credentials: they are wrong, missing, expired or insufficient.
	ErrDenied = errors.New("the store refuses the credentials")
	// ErrAbsent: there is no such bucket or object.
	ErrAbsent = errors.New("the store has no such object")
	// ErrUnreachable: the answer was missing, incomplete or a failure of the store. A later call may
	// succeed.
	ErrUnreachable = errors.New("the store cannot be reached")
)

// Error is a failure with Triton's text. errors.As finds its *infer.Error, which has text and code;
// errors.Is the reason.
type Error struct {
	reason error // one of the above, or nil
	infer  infer.Error
}

// Error is the text.
func (e *Error) Error() string { return e.infer.Message }

// Unwrap gives the reason and the form that clients see.
func (e *Error) Unwrap() []error {
	if e.reason == nil {
		return []error{&e.infer}
	}
	return []error{e.reason, &e.infer}
}

func newError(reason error, code infer.Code, format string, args ...any) *Error {
	return &Error{reason: reason, infer: infer.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func malformed(format string, args ...any) *Error {
	return newError(nil, infer.InvalidArg, format, args...)
}

func internal(format string, args ...any) *Error {
	return newError(nil, infer.Internal, format, args...)
}

// OpenError is the error of an Opener.
func (l Location) OpenError(c Cause) *Error {
	switch l.Scheme {
	case S3:
		return newError(c.Reason, infer.Internal, "Unable to create S3 filesystem client. Check account credentials. Exception: '%s' Message: '%s'", c.Name, c.Message)
	case GCS:
		return newError(c.Reason, infer.Internal, "Unable to create GCS client. Check account credentials. (%s: %s)", c.Name, c.Message)
	}
	return newError(c.Reason, infer.Internal, "Unable to create Azure filesystem client. Check account credentials. (%s: %s)", c.Name, c.Message)
}

// ListError is the error of Bucket.List.
func (l Location) ListError(prefix string, c Cause) *Error {
	switch l.Scheme {
	case S3:
		return newError(c.Reason, infer.Internal, "Failed to list objects with prefix %s due to exception: %s, error message: %s", l.Join(prefix), c.Name, c.Message)
	case GCS:
		return newError(c.Reason, infer.Internal, "Could not list contents of directory at %s : %s: %s", l.Join(prefix), c.Name, c.Message)
	}
	return newError(c.Reason, infer.Internal, "Failed to get contents of directory %s: %s: %s", l.Join(prefix), c.Name, c.Message)
}

// ReadError is the error of Bucket.Open and of its readers.
func (l Location) ReadError(key string, c Cause) *Error {
	switch {
	case errors.Is(c.Reason, ErrAbsent):
		return newError(c.Reason, infer.Internal, "File does not exist at %s", l.Join(key))
	case l.Scheme == S3:
		return newError(c.Reason, infer.Internal, "Failed to get object at %s due to exception: %s, error message: %s", l.Join(key), c.Name, c.Message)
	case l.Scheme == GCS:
		return newError(c.Reason, infer.Internal, "Failed to open object read stream for %s : %s: %s", l.Join(key), c.Name, c.Message)
	}
	return newError(c.Reason, infer.Internal, "Failed to download file at %s: %s: %s", l.Join(key), c.Name, c.Message)
}
