package conformance

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// alone is a server without other models. It rejects calls with the texts of a real server.
type alone struct{}

func unknown(model string) error {
	return infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", model)
}

// Load implements backend.Host.
func (alone) Load(context.Context, string, string, map[string][]byte) error {
	return infer.Errorf(infer.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
}

// Unload implements backend.Host.
func (alone) Unload(context.Context, string, bool) error {
	return infer.Errorf(infer.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
}

// ModelReady implements backend.Host.
func (alone) ModelReady(_ context.Context, model string, _ int64) (bool, error) {
	return false, unknown(model)
}

// Target implements backend.Host.
func (alone) Target(model string, _ int64) (backend.Target, error) { return nil, unknown(model) }
