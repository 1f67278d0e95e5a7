package message

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// errUnparsable rejects malformed messages.
var errUnparsable = status.Error(codes.Internal, "Unable to parse request")

// OutOfMemory rejects one message for lack of memory; the stream continues.
type OutOfMemory struct{ Text string }

// Error returns the text.
func (e *OutOfMemory) Error() string { return e.Text }

// GRPCStatus returns the status of the RPC for the library.
func (e *OutOfMemory) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.Text) }

// AsOutOfMemory wraps the error of an Account or an Allocator in an OutOfMemory.
func AsOutOfMemory(err error) error {
	if err == nil {
		return nil
	}
	return &OutOfMemory{Text: infer.AsError(err).Message}
}

// invalid returns an InvalidArg error.
func invalid(format string, args ...any) *infer.Error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
