package sdk

import (
	"context"
	"log/slog"

	"github.com/nereid-serving/nereid/kserve"
)

// New initializes a backend. It is called once in each process that runs the backend, before its first model.
type New func(env *BackendEnv) (Backend, error)

// BackendEnv is what a backend knows of its server.
type BackendEnv struct {
	Name      string
	Directory string // where its files lie; "" if it is linked in
	// Settings are those of --backend-config for all backends, under those for this one.
	Settings map[string]string
	// Message has the settings as Triton's backends get them, JSON: {"cmdline":{…}}.
	Message string
	Log     *slog.Logger
}

// Attributes say how a backend wants to be run.
type Attributes struct {
	// Groups are the instance groups of models whose config has none, in the order of preference; KIND_GPU is passed over where there
	// are no GPUs. Counts and GPUs that a group of a config leaves open are those of its kind here. Of plugins they are not known
	// when a config is read, and have no effect.
	Groups []Group
	// ParallelInstances: instances of one model may be made at the same time.
	ParallelInstances bool
}

// Group is a preferred instance group.
type Group struct {
	Kind  kserve.ModelInstanceGroup_Kind
	Count int32 // 0: 1
	GPUs  []int32
}

// Backend makes models. Different models are made at the same time.
type Backend interface {
	Attributes() Attributes
	// NewModel is called once for each version that is loaded. An error ends the load, and reaches clients.
	NewModel(env *ModelEnv) (Model, error)
	// Close comes last, when all models are closed.
	Close()
}

// Model makes instances.
type Model interface {
	// NewInstance is called once for each instance, one after another unless the backend's attributes allow
	// otherwise, for passive ones too.
	NewInstance(env *InstanceEnv) (Instance, error)
	// Close comes when all instances are closed.
	Close()
}

// Instance executes requests.
type Instance interface {
	// Execute takes all requests or, returning an error, none: docs/backends.md, "Ownership". It is called for one batch at a
	// time, in the order of the batch; other instances execute at the same time. ctx ends with the instance's life.
	Execute(ctx context.Context, requests []*Request) error
	// Close comes when no Execute is under way; requests that the instance still has must be answered before it returns.
	Close()
}

// Readier is an Instance that says itself whether it is ready. Ready may be called beside Execute.
type Readier interface {
	Ready(ctx context.Context) error
}

// Strategist is a Model that decides which requests share a batch. It is asked in linked-in backends alone.
type Strategist interface {
	// BeginBatch is asked when a batch is begun; the function that it returns is asked about each request that could join. Neither
	// may block: the scheduler is locked.
	BeginBatch() (include func(bytes int64) bool)
}
