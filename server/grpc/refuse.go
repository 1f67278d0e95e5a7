package grpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// errUnparsable refuses what is no message of its kind.
var errUnparsable = status.Error(codes.Internal, "Unable to parse request")

// noRoom refuses one message for want of memory: others go on.
type noRoom struct{ text string }

func (e *noRoom) Error() string { return e.text }

// GRPCStatus tells the library how the call ends.
func (e *noRoom) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.text) }

// asNoRoom makes a noRoom of what an Account or an Allocator has said.
func asNoRoom(err error) error {
	if err == nil {
		return nil
	}
	return &noRoom{text: infer.AsError(err).Message}
}

// invalid returns an InvalidArg error.
func invalid(format string, args ...any) *infer.Error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
