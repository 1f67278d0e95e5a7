package sdk

import (
	"context"
	"log/slog"

	"github.com/nereid-serving/nereid/kserve"
)

// New initializes a backend. It is called once in each process that runs the backend, before its
// first model.
type New func(env *BackendEnv) (Backend, error)

// BackendEnv describes the server and its settings to a backend.
type BackendEnv struct {
	Name      string
	Directory string // of its files; "" if it is linked in
	// Settings merges --backend-config for all backends with those for this one, which take
	// precedence.
	Settings map[string]string
	// Message has the settings as JSON in the form that Triton's backends receive: {"cmdline":{…}}.
	Message string
	Log     *slog.Logger
}

// Attributes describe how a backend should be run.
type Attributes struct {
	// Groups are the instance groups of models whose config has none, in order of preference. KIND_GPU
	// is skipped without GPUs. If a group in the config lacks a count or GPUs, it takes them from the
	// group of its kind. Groups have no effect for plugins.
	Groups []Group
	// ParallelInstances allows instances of one model to be created concurrently.
	ParallelInstances bool
}

// Group is a preferred instance group.
type Group struct {
	Kind  kserve.ModelInstanceGroup_Kind
	Count int32 // 0: 1
	GPUs  []int32
}

// Backend creates models. Different models are created concurrently.
type Backend interface {
	Attributes() Attributes
	// NewModel is called once for each loaded version. An error fails the load and reaches clients.
	NewModel(env *ModelEnv) (Model, error)
	// Close is called when all models are closed.
	Close()
}

// Model creates instances.
type Model interface {
	// NewInstance is called once for each instance, also for passive ones, and sequentially unless
	// the backend's attributes allow otherwise.
	NewInstance(env *InstanceEnv) (Instance, error)
	// Close is called when all instances are closed.
	Close()
}

// Instance executes requests.
type Instance interface {
	// Execute takes ownership of all requests or, if it returns an error, of none: see "Ownership" in
	// docs/backends.md. Calls of one instance never overlap; other instances execute concurrently. ctx
	// is cancelled when the instance ends.
	Execute(ctx context.Context, requests []*Request) error
	// Close is called when no Execute is running. It must respond to all requests that the instance
	// still holds before it returns.
	Close()
}

// Readier is an Instance that reports its own readiness. Ready may be called during Execute.
type Readier interface {
	Ready(ctx context.Context) error
}

// Strategist is a Model that decides which requests share a batch. It has no effect for plugins.
type Strategist interface {
	// BeginBatch is called for each new batch; the returned function is called for each request that
	// could join. Neither may block, because the scheduler's lock is held.
	BeginBatch() (include func(bytes int64) bool)
}
