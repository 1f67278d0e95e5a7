package grpc

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
)

// statusCodes has the gRPC status of each code.
var statusCodes = [...]codes.Code{
	infer.Unknown:       codes.Unknown,
	infer.Internal:      codes.Internal,
	infer.NotFound:      codes.NotFound,
	infer.InvalidArg:    codes.InvalidArgument,
	infer.Unavailable:   codes.Unavailable,
	infer.Unsupported:   codes.Unimplemented,
	infer.AlreadyExists: codes.AlreadyExists,
	infer.Cancelled:     codes.Canceled,
}

// Errors that are the same for every request.
var (
	errUnknown  = status.Error(codes.Unimplemented, "")
	errExiting  = status.Error(codes.Unavailable, "Server exiting")
	errDeadline = status.Error(codes.DeadlineExceeded, "Deadline Exceeded") // Triton's text
	errPanic    = status.Error(codes.Internal, "internal error while serving the request")
	// errStopping rejects inferences once shutdown has begun.
	errStopping = &infer.Error{
		Code:    infer.Unavailable,
		Message: "GRPC server is shutting down and has stopped accepting new requests.",
	}
)

// statusOf converts an error of lower packages to the status that the client receives.
func statusOf(err error) error {
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
	switch {
	case e.OutOfMemory:
		code = codes.ResourceExhausted
	case e.Code.Valid():
		code = statusCodes[e.Code]
	}
	return status.Error(code, e.Message)
}

// Bounds of the text of a status, in bytes. It travels in a header. gRPC's C core, and so every
// client in Python and C++, may reject headers of more than 8 KiB in all, and then loses the
// status code, too. Each byte that is not printable ASCII takes three there; 1 KiB is left for
// other headers.
const (
	maxText        = 4 << 10
	maxEncodedText = 7 << 10
	maxCutMark     = 64      // the ellipsis and the number after it, encoded
	maxLoggedText  = 8 << 10 // logged of a truncated text
)

// cutStatus truncates the text of err, the status of an RPC, to the length that clients accept, and
// logs the original.
func (g *FrontEnd) cutStatus(err error) error {
	s, ok := status.FromError(err)
	if !ok || s == nil {
		return err
	}
	whole := s.Message()
	text := shortText(whole)
	if len(text) == len(whole) {
		return err
	}
	logged := whole
	if len(logged) > maxLoggedText {
		logged = logged[:maxLoggedText]
	}
	g.log.Info().Str("error", logged).Int("bytes", len(whole)).Msg("the text of an error is too long for gRPC, the client gets its beginning")
	return status.Error(s.Code(), text)
}

// shortText returns text, or as much of it as a status may have, followed by an ellipsis and the
// original length in bytes.
func shortText(text string) string {
	keep, encoded := 0, 0
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if ' ' <= r && r <= '~' && r != '%' {
			encoded++
		} else {
			encoded += 3 * utf8.RuneLen(r) // U+FFFD for invalid UTF-8
		}
		at += size
		if at > maxText || encoded > maxEncodedText {
			return fmt.Sprintf("%s… (%d bytes)", text[:keep], len(text))
		}
		if at <= maxText-maxCutMark && encoded <= maxEncodedText-maxCutMark {
			keep = at
		}
	}
	return text
}
