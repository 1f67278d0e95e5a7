package sdk

import (
	"log/slog"

	"github.com/nereid-serving/nereid/kserve"
)

// ModelEnv is what a model version knows of itself and its server.
type ModelEnv struct {
	Name      string
	Version   int64
	Directory string // of the model; Directory/Version has the files of this version
	// Config is the model's, as read and normalised. It is not changed; SetConfig takes a changed copy.
	Config *kserve.ModelConfig
	// AutoComplete: the config may be completed, by SetConfig.
	AutoComplete bool
	Backend      *BackendEnv
	Log          *slog.Logger
}

// InstanceEnv is what an instance knows of itself.
type InstanceEnv struct {
	Name             string
	Kind             string // "CPU", "GPU" or "MODEL"
	Device           int32  // the number of its GPU, 0 elsewhere
	Profiles         []string
	SecondaryDevices []SecondaryDevice
	Passive          bool
	HostPolicy       string // JSON
	Model            *ModelEnv
	Log              *slog.Logger
}

// SecondaryDevice is one of the devices that a group's config names beside its own.
type SecondaryDevice struct {
	Kind   string
	Device int64
}

// Request is one inference request, lent to an instance until it is released.
type Request struct{}
