package command

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// UntilSignal returns a context that ends at SIGINT or SIGTERM. A second signal kills the process.
func UntilSignal() (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, panics.Guard(zerolog.Nop(), panics.Server, stop, nil))
	return ctx, stop
}
