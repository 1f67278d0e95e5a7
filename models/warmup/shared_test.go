package warmup

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
)

// Gated is an instance that only has a name.
type Gated struct{ Called string }

func (g *Gated) Name() string { return g.Called }

func (g *Gated) Ready(context.Context) error { return nil }

func (g *Gated) Execute(*backend.Batch) {}

func (g *Gated) Capabilities() backend.Capabilities { return backend.Capabilities{} }
