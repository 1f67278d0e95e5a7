package message

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// errUnparsable rejects malformed messages.
var errUnparsable = status.Error(codes.Internal, "Unable to parse request")

// NoRoom rejects one message for lack of memory; the stream continues.
type NoRoom struct{ Text string }

// Error returns the text.
func (e *NoRoom) Error() string { return e.Text }

// GRPCStatus returns the status of the RPC for the library.
func (e *NoRoom) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.Text) }

// AsNoRoom wraps the error of an Account or an Allocator in a NoRoom.
func AsNoRoom(err error) error {
	if err == nil {
		return nil
	}
	return &NoRoom{Text: infer.AsError(err).Message}
}

// invalid returns an InvalidArg error.
func invalid(format string, args ...any) *infer.Error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
