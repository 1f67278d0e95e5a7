package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// grpcCodes has the gRPC status of each code.
var grpcCodes = [...]codes.Code{
	infer.Unknown:       codes.Unknown,
	infer.Internal:      codes.Internal,
	infer.NotFound:      codes.NotFound,
	infer.InvalidArg:    codes.InvalidArgument,
	infer.Unavailable:   codes.Unavailable,
	infer.Unsupported:   codes.Unimplemented,
	infer.AlreadyExists: codes.AlreadyExists,
	infer.Cancelled:     codes.Canceled,
}

// Refusals that are the same for every request.
var (
	errGRPCUnparsable = status.Error(codes.Internal, "Unable to parse request")
	errGRPCUnknown    = status.Error(codes.Unimplemented, "")
	errGRPCExiting    = status.Error(codes.Unavailable, "Server exiting")
	errGRPCPanic      = status.Error(codes.Internal, "unexpected error while handling the request")
	// errGRPCStopping refuses inference once shutdown has begun.
	errGRPCStopping = &infer.Error{
		Code:    infer.Unavailable,
		Message: "GRPC server is shutting down and has stopped accepting new requests.",
	}
)

// grpcStatus turns an error of the rooms below into what the client gets.
func grpcStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var e *infer.Error
	if !errors.As(err, &e) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return status.FromContextError(err).Err()
	}
	e = infer.AsError(err)
	code := codes.Unknown
	if e.Code.Valid() {
		code = grpcCodes[e.Code]
	}
	return status.Error(code, e.Message)
}

// grpcInvalid returns an InvalidArg error.
func grpcInvalid(format string, args ...any) *infer.Error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
