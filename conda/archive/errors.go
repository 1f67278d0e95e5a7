package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
)

// Error reports why an archive was refused, or at which entry its unpacking ended. The
// caller puts the archive's name in front.
type Error struct {
	Entry  string // the entry's name as the archive has it; empty if the reason concerns no single entry
	Reason string // begins with Triton's text where Triton has one
	Limit  string // the field of Limits that was exceeded; empty if none was
	Err    error  // the cause, if there is one: a decompressor's error, a number of the kernel (ENOSPC)
}

// Error returns one sentence.
func (e *Error) Error() string {
	text := e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Entry == "" {
		return text
	}
	return fmt.Sprintf("entry %q: %s", infer.Cut(e.Entry, mostShown), text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// mostShown limits a name in a message, in bytes: an archive may contain names of a mebibyte.
const mostShown = 512 + len("…")

// Triton's texts, which are those of libarchive.
const (
	refusedHeader = "archive_write_header() failed with error code = -25 error message is "
	damagedHeader = "archive_read_next_header() failed with error code = -30 error message is "
	damagedData   = "archive_read_data_block() failed with error code = -30"
	failedWrite   = "archive_write_data_block() failed with error code = -25, error message is "
)

// errTrailing reports bytes after the end of an archive.
var errTrailing = errors.New("unrelated bytes follow the end of the archive")

// sourceError is an error of the caller's reader, as opposed to one of a decompressor.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return "read the archive: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// readError converts an error from reading the archive, without the position: to an *Error without
// an entry, an error of the source, or the end of the context.
func readError(err error) error {
	var refused *Error
	var source *sourceError
	switch {
	case errors.As(err, &refused), errors.As(err, &source), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF:
		return &Error{Reason: "the archive is cut off"}
	}
	return &Error{Reason: "the archive is damaged", Err: err}
}

// diskError converts a kernel error at an entry.
func diskError(entry, doing string, err error) *Error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		doing += "; free space in the file system, or name a directory in another one"
	case errors.Is(err, unix.EDQUOT):
		doing += "; the user's quota is used up"
	case errors.Is(err, unix.EFBIG):
		doing += "; the file is larger than the process or the file system allows"
	}
	var number unix.Errno
	if errors.As(err, &number) {
		err = number // the reason names the operation, and Entry the name
	}
	return &Error{Entry: entry, Reason: doing, Err: err}
}
