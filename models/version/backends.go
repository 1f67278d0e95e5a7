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
	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// runtimeScript is the file of a Python-based backend: <backend directory>/<name>/model.py.
const runtimeScript = "model.py"

// executor is what runs a version of a model.
type executor struct {
	backend backend.Backend
	// script and settings belong to a Python-based backend; "" and nil for a backend that
	// is built in.
	script   string
	settings map[string]string
	plugin   string // the program of a backend that is one, else ""
}

// PluginPrefix begins the file name of a plugin's program; the backend's name follows.
const PluginPrefix = "nereid_"

// Script returns the model.py of a Python-based backend in the directory of all backends. It
// returns "" if it is missing, or if a plugin of that name comes first.
func Script(directory, backend string) string {
	if backend == "" || backend == config.BackendPython || !filepath.IsLocal(backend) {
		return ""
	}
	script := filepath.Join(directory, backend, runtimeScript)
	if !isFile(script) || isFile(filepath.Join(directory, backend, PluginPrefix+backend)) {
		return ""
	}
	return script
}

// Plugins lists the programs of a backend, or of all backends if the name is "*": those in the
// directory of all backends and those beside models and versions in the repositories.
//
// bound: the repositories and their files
func Plugins(directory string, repositories []string, backend string) (programs []string) {
	file := PluginPrefix + backend
	patterns := []string{filepath.Join(directory, backend, file)}
	for _, root := range repositories {
		patterns = append(patterns, filepath.Join(root, "*", file), filepath.Join(root, "*", "*", file))
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // a root that is no valid pattern has no plugins
		programs = append(programs, found...)
	}
	return programs
}

// Named lists the names of plugins and of Python-based backends, including those in the directory
// of all backends.
//
// bound: the repositories and their files
func Named(directory string, repositories []string) (names []string) {
	for _, program := range Plugins(directory, repositories, "*") {
		names = append(names, strings.TrimPrefix(filepath.Base(program), PluginPrefix))
	}
	scripts, _ := filepath.Glob(filepath.Join(directory, "*", runtimeScript))
	for _, script := range scripts {
		names = append(names, filepath.Base(filepath.Dir(script)))
	}
	return names
}

// executor finds the backend of a version: a built-in or linked backend, a plugin
// beside the model or in the backends' directory, or a model.py there. The texts are Triton's,
// except for libraries, which cannot be run here.
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
	known := append(slices.Sorted(maps.Keys(l.settings.Backends)), Named(l.settings.BackendDirectory, nil)...) // bound: Named
	if meant := spelling.Nearest(name, known); meant != "" && runtime == "" {
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
	if plugin := find(searched, pluginOf(name, runtime)); plugin != "" && l.settings.Plugins != nil {
		return executor{backend: l.settings.Plugins, plugin: plugin}, nil
	}
	if runtime != "" && runtime != runtimeScript {
		library = runtime
	}
	if runtime != runtimeScript {
		if find(searched, library) != "" {
			return executor{}, infer.Errorf(infer.Unsupported, "model '%s' needs the backend library '%s', which this server cannot run", d.Name, library)
		}
	}
	script := filepath.Join(directory, runtimeScript)
	b := l.settings.Backends[config.BackendPython]
	switch {
	case runtime != "" && runtime != runtimeScript:
		var paths strings.Builder // bound: three paths
		for _, path := range searched {
			fmt.Fprintf(&paths, "'%s' ", path)
		}
		return executor{}, infer.Errorf(infer.InvalidArg, "unable to find backend library '%s' for model '%s', searched: %s", runtime, d.Name, paths.String())
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

// pluginOf returns the file name of a backend's program, "" if runtime asks for a library or a
// script.
func pluginOf(name, runtime string) string {
	switch {
	case runtime == "", runtime == "libtriton_"+name+".so": // as configs for Triton may say
		return PluginPrefix + name
	case runtime == runtimeScript, filepath.Ext(runtime) == ".so":
		return ""
	}
	return runtime
}

// find returns the first file of a name in some directories, or "".
func find(directories []string, name string) string {
	for _, directory := range directories {
		if path := filepath.Join(directory, name); name != "" && isFile(path) {
			return path
		}
	}
	return ""
}

// env returns the backend's view of a version with the description d.
func (e *executor) env(s Source, d *repository.Description, responses func(backend.ResponseReport)) backend.Env {
	env := backend.Env{
		Name: d.Name, Namespace: d.Namespace, Version: s.Version, Directory: d.Directory, Config: d.Config,
		Environment: d.Environment, Runtime: e.script, Plugin: e.plugin, Settings: e.settings, Host: s.Host, Responses: responses,
	}
	if s.Imports != nil {
		env.Imported = s.Imports.Add
	}
	return env
}

// describe returns the description that the executor needs: for a Python-based backend its
// configuration says so.
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
