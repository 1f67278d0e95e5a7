package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/infer"
	"github.com/rs/zerolog"
)

// code is the program of a Python model: the model file and its interpreter.
type code struct {
	backend *Backend
	env     backend.Env
	// settings are those of the backend or of a Python-based backend.
	settings *Config
	path     string // of the model file
	log      zerolog.Logger
	// envPath is the location of the execution environment, or nil. It is chosen once, when the model
	// is opened.
	envPath *conda.EnvPath

	mu     sync.Mutex
	held   *holding // from Check to Close
	closed bool

	// overlap is how many calls of an asynchronous execute may overlap. Configure sets it.
	overlap      int
	shares       atomic.Bool // a process runs several instances. Set by Check.
	takesDevices bool        // inputs may be on devices. Set by Configure.
	noDeviceCopy bool        // as_numpy raises an error for tensors on devices. Set by Configure.
}

var _ process.Program = (*code)(nil)

// Capabilities implements process.Program.
func (c *code) Capabilities() process.ProgramCapabilities {
	return process.ProgramCapabilities{UsesDevices: true, TakesDevices: c.takesDevices, SharesProcess: c.shares.Load()}
}

func (b *Backend) open(env backend.Env) (*process.Model, error) {
	c := &code{
		backend: b, env: env, settings: &b.config, path: env.Runtime,
		log: b.log.With().Str("model", env.Name).Int64("version", env.Version).Logger(),
	}
	if env.Settings != nil {
		settings, err := ParseConfig(env.Settings)
		if err != nil {
			return nil, err
		}
		c.settings = &settings
	}
	if _, err := os.Stat(filepath.Join(env.Directory, "triton_python_backend_stub")); err == nil {
		c.log.Warn().Msgf("the model has its own triton_python_backend_stub, which is not supported and not needed: set its interpreter with the parameter EXECUTION_ENV_PATH or with --backend-config=%s,python-executable=PATH",
			env.Config.GetBackend())
	}
	if err := c.checkInputPlace(); err != nil {
		return nil, err
	}
	var err error
	if c.envPath, err = c.locate(); err != nil {
		return nil, err
	}
	if env.Runtime != "" {
		return b.supervisor.Open(env, &c.settings.Config, c), nil
	}
	file := env.Config.GetDefaultModelFilename()
	if file == "" {
		file = "model.py"
	}
	if !strings.HasSuffix(file, ".py") {
		return nil, infer.Errorf(infer.Internal, "Model name must end with '.py'. Model name is \"%s\".", file)
	}
	if file != filepath.Base(file) {
		return nil, infer.Errorf(infer.InvalidArg, "default_model_filename of model '%s' is %q, want the name of a file in the version directory", env.Name, file)
	}
	c.path = filepath.Join(c.directory(), file)
	return b.supervisor.Open(env, &c.settings.Config, c), nil
}

// checkInputPlace checks the parameter that allows inputs on a GPU. Inputs are never on a GPU here,
// but models that Triton would not load are rejected.
func (c *code) checkInputPlace() error {
	p, ok := c.env.Config.GetParameters()["FORCE_CPU_ONLY_INPUT_TENSORS"]
	if !ok {
		return nil
	}
	switch p.GetStringValue() {
	case "yes":
		c.log.Info().Msg("Forcing CPU only input tensors.")
	case "no":
		c.log.Info().Msg("Input tensors can be both in CPU and GPU. FORCE_CPU_ONLY_INPUT_TENSORS is off.")
	default:
		return infer.Errorf(infer.Unsupported, "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: %s'", p.GetStringValue())
	}
	return nil
}

// directory returns the directory of the version.
func (c *code) directory() string {
	return filepath.Join(c.env.Directory, strconv.FormatInt(c.env.Version, 10))
}

// Check implements Program. The text for a missing model file names the stub, as in Triton.
func (c *code) Check(ctx context.Context, stub string) error {
	if _, err := os.Stat(c.path); err != nil {
		// Triton notices this in the stub, prints a line and waits in vain.
		c.log.Error().Msgf("Failed to preinitialize Python stub: Python model file not found in '%s'", c.path)
		text := func(path string) string {
			return fmt.Sprintf("%s Python model file not found in '%s'", c.Text(process.ProcessLost, stub), path)
		}
		return &infer.Error{Code: infer.Internal, Message: text(c.shown()), Detail: text(c.path)}
	}
	if err := c.checkLink(); err != nil {
		return err
	}
	h, err := c.hold(ctx)
	var i interpreterInfo
	if err == nil {
		i, err = h.python.find(ctx)
	}
	switch {
	case err == nil:
		threads := c.settings.Threads
		c.shares.Store(!c.backend.config.Develop && (threads == ThreadsOn || threads == ThreadsAuto && i.FreeThreaded))
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return c.unusable(err)
}

// unusable returns the error of a load without a Python that can run the model. Clients do not
// learn which files exist.
func (c *code) unusable(err error) *infer.Error {
	return &infer.Error{Code: infer.Internal, Message: fmt.Sprintf("the Python environment of model '%s' cannot be used, the server's log has the reason", c.env.Name), Detail: err.Error()}
}

// shown returns the path of the model's file for clients.
func (c *code) shown() string {
	if c.env.Runtime != "" {
		return filepath.Base(c.path)
	}
	return filepath.Join(c.env.Name, strconv.FormatInt(c.env.Version, 10), filepath.Base(c.path))
}

// hold acquires the resources of the processes, unless that has been done.
func (c *code) hold(ctx context.Context) (*holding, error) {
	if h := c.holding(); h != nil {
		return h, nil
	}
	fresh, err := c.take(ctx) // without the lock: it may take minutes
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.held == nil && !c.closed {
		c.held = &fresh
	}
	h := c.held
	c.mu.Unlock()
	if h != &fresh { // another Check was faster, or the model has been closed meanwhile
		fresh.release(c.backend)
	}
	if h == nil {
		return nil, errors.New("the model is being unloaded")
	}
	return h, nil
}

func (c *code) holding() *holding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Close implements Program.
func (c *code) Close() {
	c.mu.Lock()
	h := c.held
	c.held, c.closed = nil, true
	c.mu.Unlock()
	if h != nil {
		h.release(c.backend)
	}
}

// checkLink rejects a model file that is a link out of the repository: users with write access
// elsewhere must not decide which code runs here. Directories may be links.
func (c *code) checkLink() error {
	if c.env.Runtime != "" {
		return nil // the operator's own
	}
	real, err := filepath.EvalSymlinks(c.path)
	if err != nil {
		return &infer.Error{Code: infer.Internal, Message: fmt.Sprintf("model file '%s' cannot be read", c.shown()), Detail: fmt.Sprintf("model file of '%s': %v", c.env.Name, err)}
	}
	for _, dir := range []string{filepath.Dir(c.env.Directory), c.env.Directory, filepath.Dir(c.path)} {
		root, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if inside, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(inside) {
			return nil
		}
	}
	return infer.Errorf(infer.InvalidArg, "'%d/%s' of model '%s' is a link that leaves the repository", c.env.Version, filepath.Base(c.path), c.env.Name)
}

// Start implements Program.
func (c *code) Start(_ context.Context, instance string, files *process.Files) (*launch.Process, error) {
	return c.holding().python.start(instance, files) // Check comes before, and Close after
}

// Text implements Program with Triton's texts.
func (c *code) Text(fault process.Fault, subject string) string {
	switch fault {
	case process.ProcessLost:
		return backend.Unhealthy(subject).Message
	case process.ReadyLate:
		return "Timed out waiting for user-defined is_ready() response"
	case process.SharedReadyLate:
		return "Timed out waiting for in-flight is_ready() response"
	case process.ReadyLost:
		return "Stub process is not healthy while waiting for user-defined is_ready() response"
	case process.NotReady:
		return fmt.Sprintf("Model '%s' is not ready (user-defined check failed).", subject)
	case process.OneResponseWanted:
		return fmt.Sprintf("Model %s is using the decoupled. The current BLS request call doesn't support models using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'", subject)
	case process.LeastMemory:
		return "Each Python backend model instance requires at least 1 MB of shared memory."
	}
	return ""
}
