package backendtest

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
)

// Target is a backend.Target with the given properties.
type Target struct {
	IsDecoupled, Asks, Devices bool
	NotReady                   error
	Run                        func(ctx context.Context, r *infer.Request, send infer.Sender) error
}

// Submit implements backend.Target.
func (t *Target) Submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	return t.Run(ctx, r, send)
}

// Release implements backend.Target.
func (t *Target) Release() {}

// Decoupled implements backend.Target.
func (t *Target) Decoupled() bool { return t.IsDecoupled }

// AsksReady implements backend.Target.
func (t *Target) AsksReady() bool { return t.Asks }

// Ready implements backend.Target.
func (t *Target) Ready(context.Context) error { return t.NotReady }

// TakesDevices implements backend.Target.
func (t *Target) TakesDevices() bool { return t.Devices }
