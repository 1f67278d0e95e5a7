package server

import (
	"context"
	"errors"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
)

// Core is what the front ends ask of the packages below; models.Registry is it.
// Errors are *infer.Error and their texts go to clients as they are.
type Core interface {
	// Live reports whether the server works at all, Ready whether it is ready by
	// the rules of strict readiness. Both fail with Unavailable "Server exiting"
	// once shutdown has begun.
	Live() (bool, error)
	Ready(ctx context.Context) (bool, error)
	// ModelReady reports whether a version (infer.LatestVersion: the highest that
	// is ready) can serve and its backend says so. An unknown or unready model
	// is an error as Model gives it.
	ModelReady(ctx context.Context, name string, version int64) (bool, error)

	// Target returns the version that a request would reach, and Model what describes
	// it. They fail with NotFound or Unavailable where no version is ready.
	Target(name string, version int64) (models.Target, error)
	Model(name string, version int64) (*models.Info, error)
	// ReadyVersions lists the versions of a model that are ready, ascending.
	ReadyVersions(name string) []int64

	// Statistics returns the ready versions' statistics: of all models if name
	// is empty, of all versions if version is infer.LatestVersion. Models are in
	// the order of their names, versions ascend.
	Statistics(name string, version int64) ([]*kserve.ModelStatistics, error)

	// Index lists the repository, with ready only what is ready.
	Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error)
	// Load returns when the model is loaded or has failed to; config is a
	// ModelConfig as JSON ("" = none), files are contents by path within the
	// model's directory.
	Load(ctx context.Context, name, config string, files map[string][]byte) error
	// Unload returns when unloading has begun.
	Unload(ctx context.Context, name string, dependents bool) error
	// SetInstances gives a group of a model's instances ("": the only group)
	// another count while it serves, and returns what there is when the new ones
	// serve, too.
	SetInstances(ctx context.Context, name, group string, count int) ([]models.InstanceState, error)
}

// InferOn has a request executed by the version that was found for it, or by the
// version's successor, which is found then, if it has been replaced meanwhile.
func InferOn(ctx context.Context, core Core, found *models.Target, req *infer.Request, send infer.Sender) error {
	for {
		err := (*found).Infer(ctx, req, send)
		if !errors.Is(err, models.ErrReplaced) {
			return err
		}
		if *found, err = core.Target(req.Model, req.Version); err != nil {
			return err
		}
	}
}
