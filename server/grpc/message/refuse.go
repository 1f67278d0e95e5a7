package message

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// errUnparsable refuses what is no message of its kind.
var errUnparsable = status.Error(codes.Internal, "Unable to parse request")

// NoRoom refuses one message for want of memory: others go on.
type NoRoom struct{ Text string }

// Error returns the text.
func (e *NoRoom) Error() string { return e.Text }

// GRPCStatus tells the library how the RPC ends.
func (e *NoRoom) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.Text) }

// AsNoRoom makes a NoRoom of what an Account or an Allocator has said.
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
