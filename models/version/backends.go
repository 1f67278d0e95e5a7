package version

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/spelling"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// runtimeScript is the file of a Python-based backend: <backend directory>/<name>/model.py.
const runtimeScript = "model.py"

// executor is what runs a version of a model.
type executor struct {
	backend backend.Backend
	// script and settings are of a Python-based backend; "" and nil for a backend that
	// is built in.
	script   string
	settings map[string]string
}

// executor finds what runs a version: a backend that is built in, or a directory
// with a model.py beside the libraries of Triton's backends. The texts are
// Triton's, but for libraries, which cannot be run here.
func (l *Loader) executor(d *repository.Description, number int64) (executor, error) {
	if d.Config.GetPlatform() == config.PlatformEnsemble {
		return executor{backend: ensembles{}}, nil
	}
	name, runtime := d.Config.GetBackend(), d.Config.GetRuntime()
	library := "libtriton_" + name + ".so"
	if b := l.settings.Backends[name]; b != nil && (runtime == "" || runtime == library) {
		return executor{backend: b}, nil
	}
	unknown := infer.Errorf(infer.InvalidArg, "unable to find backend library for backend '%s', try specifying runtime on the model configuration.", name)
	if meant := spelling.Nearest(name, slices.Sorted(maps.Keys(l.settings.Backends))); meant != "" && runtime == "" {
		unknown.Message += " Did you mean '" + meant + "'?"
	}
	if !repository.IsName(name) { // it would lead out of the backends' directory
		return executor{}, unknown
	}
	directory := filepath.Join(l.settings.BackendDirectory, name)
	if runtime != "" && !filepath.IsLocal(runtime) {
		return executor{}, infer.Errorf(infer.InvalidArg,
			"backend library name '%s' escapes backend directory '%s', for model '%s', check model config runtime field", runtime, directory, d.Name)
	}
	searched := []string{filepath.Join(d.Directory, strconv.FormatInt(number, 10)), d.Directory, directory}
	if runtime != "" && runtime != runtimeScript {
		library = runtime
	}
	if runtime != runtimeScript {
		for _, place := range searched {
			if isFile(filepath.Join(place, library)) {
				return executor{}, infer.Errorf(infer.Unsupported, "model '%s' needs the backend library '%s', which this server cannot run", d.Name, library)
			}
		}
	}
	script := filepath.Join(directory, runtimeScript)
	b := l.settings.Backends[config.BackendPython]
	switch {
	case runtime != "" && runtime != runtimeScript:
		var places strings.Builder
		for _, place := range searched {
			fmt.Fprintf(&places, "'%s' ", place)
		}
		return executor{}, infer.Errorf(infer.InvalidArg, "unable to find backend library '%s' for model '%s', searched: %s", runtime, d.Name, places.String())
	case isFile(script) && b != nil:
		e := executor{backend: b, script: script}
		if l.settings.BackendSettings != nil {
			e.settings = l.settings.BackendSettings(name)
		}
		return e, nil
	case runtime == runtimeScript:
		return executor{}, infer.Errorf(infer.InvalidArg, "unable to find Python backend based backend library '%s' for model '%s', searched: '%s'", runtimeScript, d.Name, script)
	}
	return executor{}, unknown
}

// env is what the backend learns of a version.
func (e *executor) env(h backend.Host, d *repository.Description, number int64) backend.Env {
	return backend.Env{
		Name: d.Name, Namespace: d.Namespace, Version: number, Directory: d.Directory, Config: d.Config,
		Runtime: e.script, Settings: e.settings, Host: h,
	}
}

// describe is d for what runs it: the configuration of a model of a Python-based
// backend says so.
func (e *executor) describe(d *repository.Description) *repository.Description {
	if e.script == "" {
		return d
	}
	based := *d
	based.Config = config.Clone(d.Config)
	based.Config.Runtime = runtimeScript
	return &based
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func invalid(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
