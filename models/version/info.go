package version

import (
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// Info describes one loaded version of a model. It does not change.
type Info struct {
	Name    string
	Version int64
	// Namespace is the model's, "" unless equal names may live in several
	// repositories.
	Namespace string
	// Plugin is the program of a backend that is one, else "".
	Plugin string
	// Config is the effective configuration: completed and normalised.
	Config *kserve.ModelConfig
	// JSON is its JSON form, as the config endpoint and the model see it.
	JSON []byte
	// Labels of the outputs that have a label file, by output name; the index of
	// a label is the index of its class, "" means none.
	Labels map[string][]string
}

// Identity names the model in its repository.
func (i *Info) Identity() repository.Identity {
	return repository.Identity{Namespace: i.Namespace, Name: i.Name}
}

// Decoupled reports whether the model may send any number of responses.
func (i *Info) Decoupled() bool { return i.Config.GetModelTransactionPolicy().GetDecoupled() }

// Platform is what metadata calls the platform: the config's, or its backend.
func (i *Info) Platform() string {
	if p := i.Config.GetPlatform(); p != "" {
		return p
	}
	return i.Config.GetBackend()
}

// PythonBased reports whether a Python-based backend runs the model.
func (i *Info) PythonBased() bool { return i.Config.GetRuntime() == runtimeScript }
