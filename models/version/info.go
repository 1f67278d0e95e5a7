package version

import (
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// Info describes one loaded version of a model. It is immutable.
type Info struct {
	Name    string
	Version int64
	// Namespace is the model's, "" unless equal names may exist in several repositories.
	Namespace string
	// Plugin is the program of a plugin backend, "" for other backends.
	Plugin string
	// Config is the effective configuration: completed and normalised.
	Config *kserve.ModelConfig
	// JSON is its JSON form, as the config endpoint and the model see it.
	JSON []byte
	// Labels are the labels of the outputs with a label file, by output name. The index of a label
	// is the index of its class; "" means no label.
	Labels map[string][]string
}

// Identity names the model in its repository.
func (i *Info) Identity() repository.Identity {
	return repository.Identity{Namespace: i.Namespace, Name: i.Name}
}

// Decoupled reports whether the model may send any number of responses.
func (i *Info) Decoupled() bool { return i.Config.GetModelTransactionPolicy().GetDecoupled() }

// Platform is the platform in the metadata: the config's, or its backend.
func (i *Info) Platform() string {
	if p := i.Config.GetPlatform(); p != "" {
		return p
	}
	return i.Config.GetBackend()
}

// PythonBased reports whether a Python-based backend runs the model.
func (i *Info) PythonBased() bool { return i.Config.GetRuntime() == runtimeScript }
