package python

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// completeBody is the body of AUTO_COMPLETE.
type completeBody struct {
	Config string `msgpack:"config"`
	Model  string `msgpack:"model"`
	moduleBody
	process.Surroundings
}

// initializeBody is the body of INITIALIZE.
type initializeBody struct {
	Args map[string]string `msgpack:"args"`
	process.Tensors
	moduleBody
	process.Surroundings
	process.Window
	AsyncOverlap  int  `msgpack:"async_overlap"`
	StrictOutputs bool `msgpack:"strict_outputs,omitempty"`
	NoDeviceCopy  bool `msgpack:"no_device_copy,omitempty"`
}

// moduleBody holds the fields of AUTO_COMPLETE and INITIALIZE about the module to import.
type moduleBody struct {
	Path      string   `msgpack:"path"`
	Module    string   `msgpack:"module"`
	Search    []string `msgpack:"search"`
	Directory string   `msgpack:"directory"`
	Develop   bool     `msgpack:"dev,omitempty"`
}

func (c *code) module() moduleBody {
	directory := c.directory()
	b := moduleBody{
		Path:      c.path,
		Module:    filepath.Base(directory) + "." + strings.TrimSuffix(filepath.Base(c.path), ".py"),
		Search:    []string{directory, c.env.Directory},
		Directory: directory, Develop: c.backend.config.Develop,
	}
	if c.env.Runtime != "" {
		b.Module, b.Search = "model", []string{filepath.Dir(c.path)}
	}
	return b
}

// Complete implements Program.
//
// bound: the config
func (c *code) Complete(config []byte, surroundings process.Surroundings) any {
	return &completeBody{Config: string(config), Model: c.env.Name, moduleBody: c.module(), Surroundings: surroundings}
}

// Initialize implements Program.
func (c *code) Initialize(p process.InstanceSpec, i process.Initialization) any {
	return &initializeBody{
		Args: map[string]string{
			"model_config":             string(p.Config), // bound: the config
			"model_instance_kind":      p.Kind,
			"model_instance_name":      p.Instance,
			"model_instance_device_id": p.Device,
			"model_repository":         c.env.Directory,
			"model_version":            strconv.FormatInt(c.env.Version, 10),
			"model_name":               c.env.Name,
		},
		Tensors:      i.Tensors,
		moduleBody:   c.module(),
		Surroundings: i.Surroundings,
		Window:       i.Window,
		AsyncOverlap: c.overlap, StrictOutputs: c.backend.config.StrictOutputs, NoDeviceCopy: c.noDeviceCopy,
	}
}

// overlapParameter is the config parameter with the number of calls of an asynchronous execute that
// may overlap in each instance of a model that is not decoupled.
const overlapParameter = "ASYNC_EXECUTE_OVERLAP"

// maxOverlap is its maximum.
const maxOverlap = 4096

func asyncOverlap(config *kserve.ModelConfig) (int, error) {
	p, ok := config.GetParameters()[overlapParameter]
	if !ok {
		return 1, nil
	}
	n, err := strconv.Atoi(p.GetStringValue())
	if err != nil || n < 1 || n > maxOverlap {
		return 0, infer.Errorf(infer.InvalidArg, "parameter '%s' of model '%s' is %q, want a number from 1 to %d",
			overlapParameter, config.GetName(), p.GetStringValue(), maxOverlap)
	}
	return n, nil
}

// deviceParameter is the config parameter for as_numpy of tensors on devices: copy, the default, or
// error.
const deviceParameter = "AS_NUMPY_ON_GPU"

func noDeviceCopy(config *kserve.ModelConfig) (bool, error) {
	p, ok := config.GetParameters()[deviceParameter]
	switch {
	case !ok, p.GetStringValue() == "copy":
		return false, nil
	case p.GetStringValue() == "error":
		return true, nil
	}
	return false, infer.Errorf(infer.InvalidArg, "parameter '%s' of model '%s' is %q, want copy or error", deviceParameter, config.GetName(), p.GetStringValue())
}

// Configure implements Program.
func (c *code) Configure(config *kserve.ModelConfig) (err error) {
	// By default Triton copies all inputs to the host.
	c.takesDevices = c.env.Config.GetParameters()["FORCE_CPU_ONLY_INPUT_TENSORS"].GetStringValue() == "no"
	if c.noDeviceCopy, err = noDeviceCopy(config); err != nil {
		return err
	}
	c.overlap, err = asyncOverlap(config)
	return err
}
