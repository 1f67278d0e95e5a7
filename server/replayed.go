package server

import "context"

// ReplayHeader is the header, or metadata, that marks requests as replayed. Its value is the key of
// the directory of records.
const ReplayHeader = "nereid-replay"

type replayedKey struct{}

// Replayed returns a context for requests of a recording that are sent again: they are not
// recorded.
func Replayed(ctx context.Context) context.Context {
	return context.WithValue(ctx, replayedKey{}, true)
}

// IsReplayed reports whether ctx is one of Replayed.
func IsReplayed(ctx context.Context) bool { return ctx.Value(replayedKey{}) != nil }
