package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/conda/build"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/panics"
)

// environmentParameter is the parameter of a model's config that names its environment.
const environmentParameter = "EXECUTION_ENV_PATH"

// packedEnvironment is the file name of a Python-based backend's environment, beside its model.py.
const packedEnvironment = "pb_exec_env_model.py.tar.gz"

// libraryVariable passes this process's LD_LIBRARY_PATH to a stub, for the programs that the stub
// starts: stub/pb_stub/activation.py.
const libraryVariable = "NEREID_LIBRARY_PATH"

// acceleratorVariable turns the stub's accelerator off, with the value "off".
const acceleratorVariable = "NEREID_ACCELERATOR"

// locate finds the execution environment that a model's config names, or that is beside its
// backend. It returns nil without one.
func (c *code) locate() (*conda.EnvPath, error) {
	value := ""
	if p, named := c.env.Config.GetParameters()[environmentParameter]; named {
		if value = p.GetStringValue(); c.env.Environment != "" {
			value = c.env.Environment
		}
	} else {
		if c.env.Runtime == "" {
			return nil, nil //nolint:nilnil // as the doc says
		}
		value = filepath.Join(filepath.Dir(c.env.Runtime), packedEnvironment)
		if _, err := os.Stat(value); err != nil {
			return nil, nil //nolint:nilerr,nilnil // as the doc says
		}
	}
	envPath, err := conda.Locate(value, c.env.Directory)
	if err != nil {
		return nil, c.unusable(err)
	}
	c.log.Info().Msgf("Using Python execution env %s", envPath.Path)
	if envPath.Kind != conda.Archive {
		c.log.Debug().Msgf("Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path. Path: %s", envPath.Path)
	}
	return &envPath, nil
}

// holding holds the resources of a model version from Check to Close: its interpreter and, if any,
// the directory of its unpacked environment.
type holding struct {
	python   *python
	unpacked *cache.Environment
}

// take creates and holds the resources of the model's processes, which may take minutes.
func (c *code) take(ctx context.Context) (h holding, err error) {
	if c.envPath == nil && !c.settings.BuildEnvironments {
		return holding{python: c.backend.hold(c.settings.wish(), nil)}, nil
	}
	limit := c.settings.EnvironmentTimeout
	ctx, cancel := panics.WithLimit(ctx, limit, fmt.Errorf("env-timeout-seconds ran out, which is %s", limit))
	defer cancel()
	var envPath conda.EnvPath
	switch {
	case c.envPath == nil:
		h.unpacked, err = c.build(ctx)
	case c.envPath.Kind == conda.Archive:
		h.unpacked, err = c.unpack(ctx)
	default:
		envPath = *c.envPath
	}
	if err != nil {
		return holding{}, err
	}
	if h.unpacked != nil {
		envPath = conda.EnvPath{Kind: conda.Directory, Path: h.unpacked.Directory}
		if c.envPath != nil {
			envPath.Archive = c.envPath.Path
		}
	}
	if envPath.Path == "" { // nothing is required
		return holding{python: c.backend.hold(c.settings.wish(), nil)}, nil
	}
	inside, err := conda.Inspect(envPath)
	if err != nil {
		h.release(c.backend)
		return holding{}, fmt.Errorf("execution environment %s: %w", envPath.Path, err)
	}
	for _, line := range inside.Ignored {
		c.log.Debug().Msgf("execution environment %s: activate.d sets no variables with %s", envPath.Path, line)
	}
	w := c.settings.wish()
	w.environment = envPath.Path
	if inside.Python != "" {
		w.executable = inside.Python
	} else {
		c.log.Warn().Msgf("execution environment %s has bin/activate but no bin/python: the server's interpreter runs the model, with the environment's variables", envPath.Path)
	}
	h.python = c.backend.hold(w, inside)
	return h, nil
}

// unpack returns the directory of a packed environment.
func (c *code) unpack(ctx context.Context) (*cache.Environment, error) {
	environments, err := c.backend.environments()
	if err != nil {
		return nil, err
	}
	e, err := environments.Archive(ctx, c.envPath.Path)
	if err != nil {
		return nil, withSetting(err)
	}
	c.backend.extracted(c.envPath.Path, e)
	return e, nil
}

// build returns the directory of the environment that the model's files require, or nil if they
// require none.
func (c *code) build(ctx context.Context) (*cache.Environment, error) {
	environments, err := c.backend.environments()
	if err != nil {
		return nil, err
	}
	e, err := build.New(build.Options{
		Cache: environments, Run: c.backend.supervisor.Children().Run, Python: c.settings.Executable, Variables: os.Environ(), Log: c.log,
	}).Environment(ctx, c.env.Directory)
	if e != nil {
		c.log.Info().Msgf("Using Python execution env %s", e.Directory)
	}
	return e, err
}

// release releases the resources.
func (h *holding) release(b *Backend) {
	if h.python != nil {
		b.release(h.python)
	}
	if h.unpacked != nil {
		h.unpacked.Release()
	}
}

// limitSettings maps the limits of archives to their settings.
var limitSettings = map[string]string{"Files": "env-max-files", "Bytes": "env-max-bytes", "Ratio": "env-max-ratio"}

// withSetting adds the setting of the exceeded limit to an error.
func withSetting(err error) error {
	var refused *archive.Error
	if errors.As(err, &refused) && limitSettings[refused.Limit] != "" {
		return fmt.Errorf("%w: --backend-config=python,%s=N", err, limitSettings[refused.Limit])
	}
	return err
}

// archiveSeen is the state of an archive when a model last received its environment.
type archiveSeen struct {
	changed time.Time
	digest  string
}

// mostArchives bounds the remembered archives, because uploaded models can bring new paths forever.
const mostArchives = 10_000

// extracted logs the extraction of an archive that was touched but has its old content. It was
// read, and its environment is unchanged. Triton extracts it again, and operators' tests count the
// lines. The cache logs all other extractions.
func (b *Backend) extracted(path string, e *cache.Environment) {
	info, err := os.Stat(path)
	if err != nil {
		return // it has gone just now
	}
	b.cache.Lock()
	defer b.cache.Unlock()
	now := archiveSeen{info.ModTime(), e.Digest}
	before, seen := b.cache.archives[path]
	if seen && before.digest == now.digest && !before.changed.Equal(now.changed) {
		b.log.Debug().Msg("Extracting Python execution env " + path)
	}
	if len(b.cache.archives) >= mostArchives {
		clear(b.cache.archives)
	}
	b.cache.archives[path] = now
}

// variablesIn returns the environment variables of processes in an environment, or nil for those of
// this process. The processes are pure if they do not use the accelerator.
func variablesIn(e *conda.Environment, pure bool) []string {
	var variables []string
	if e != nil {
		variables = append(e.Variables(os.Environ()), libraryVariable+"="+os.Getenv("LD_LIBRARY_PATH"))
	}
	if pure {
		if e == nil {
			variables = os.Environ()
		}
		variables = slices.DeleteFunc(variables, func(v string) bool { return strings.HasPrefix(v, acceleratorVariable+"=") })
		variables = append(variables, acceleratorVariable+"=off") // bound: the environment
	}
	return variables
}

// mostDiagnosis limits the time of a diagnosis, including that of the interpreter.
const mostDiagnosis = 30 * time.Second

// diagnose returns why the interpreter of an environment did not start, instead of its own message.
// It does not run a slow interpreter, which would take as long again.
func (p *python) diagnose(ctx context.Context, failure error) error {
	ctx, cancel := panics.WithLimit(ctx, mostDiagnosis, context.DeadlineExceeded)
	defer cancel()
	var late *lateError
	if errors.As(failure, &late) {
		failure = late
	} else if err := p.environment.Diagnose(ctx, p.backend.supervisor.Children().Run, os.Environ()); err != nil {
		failure = err
	}
	return fmt.Errorf("execution environment %s: %w", p.wish.environment, failure)
}

// environments returns the cache of unpacked environments. It is opened when the first model needs
// it.
func (b *Backend) environments() (*cache.Cache, error) {
	b.cache.Lock()
	defer b.cache.Unlock()
	if b.cache.opened != nil {
		return b.cache.opened, nil
	}
	opened, err := cache.Open(cache.Options{
		Directory: b.config.EnvironmentCache, MaxBytes: b.config.EnvironmentCacheBytes,
		Limits: archive.Limits{
			Files: b.config.EnvironmentFiles, Bytes: b.config.EnvironmentBytes, Ratio: b.config.EnvironmentRatio,
		},
		Log: b.log, Memory: b.supervisor.Memory(), Run: b.supervisor.Children().Run,
	})
	if err != nil {
		return nil, err
	}
	b.cache.opened = opened
	return opened, nil
}
