package server

import (
	"context"
	"errors"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
)

// Core serves the front ends; models.Registry implements it. Errors are *infer.Error, and
// their texts are sent to clients unchanged.
type Core interface {
	// Live reports whether the server works at all, Ready whether it is ready by the rules of
	// strict readiness. Both fail with Unavailable "Server exiting" once shutdown has begun.
	Live() (bool, error)
	Ready(ctx context.Context) (bool, error)
	// ModelReady reports whether a version (infer.LatestVersion: the highest that is ready) can
	// serve and its backend agrees. An unknown or unready model is the error of Model.
	ModelReady(ctx context.Context, name string, version int64) (bool, error)

	// Target returns the version that a request would reach, and Model its description. They fail
	// with NotFound or Unavailable if no version is ready.
	Target(name string, version int64) (models.Target, error)
	Model(name string, version int64) (*models.Info, error)
	// ReadyVersions lists the ready versions of a model, ascending.
	ReadyVersions(name string) []int64

	// Statistics returns the statistics of ready versions: of all models if name is empty, of all
	// versions if version is infer.LatestVersion. They are sorted by name and version.
	Statistics(name string, version int64) ([]*kserve.ModelStatistics, error)

	// Index lists the repository, or only its ready versions.
	Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error)
	// Load returns when the model is loaded or the load has failed. config is a ModelConfig as JSON
	// ("" = none), files are contents by path within the model's directory.
	Load(ctx context.Context, name, config string, files map[string][]byte) error
	// Unload returns when unloading has begun.
	Unload(ctx context.Context, name string, dependents bool) error
	// SetInstances changes the number of instances of a group ("": the only group) while the model
	// serves. It returns all instances when the new ones serve.
	SetInstances(ctx context.Context, name, group string, count int) ([]models.InstanceState, error)
}

// InferOn executes a request on the version that was found for it. If that has been replaced it
// finds and uses the successor.
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
