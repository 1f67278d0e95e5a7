package conformance

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
)

// alone is a server without other models: what a backend asks of it is refused with the texts of a real one.
type alone struct{}

func unknown(model string) error {
	return infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", model)
}

// Submit implements infer.Submitter.
func (alone) Submit(_ context.Context, r *infer.Request, _ infer.Sender) error {
	return unknown(r.Model)
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

// Decoupled implements backend.Host.
func (alone) Decoupled(model string, _ int64) (decoupled, asks bool, err error) {
	return false, false, unknown(model)
}

// TakesDevices implements backend.Host.
func (alone) TakesDevices(string, int64) bool { return false }
