package conda

import (
	"path/filepath"
	"slices"
	"strings"
)

// variable is an environment variable that an environment sets.
type variable struct{ name, value string }

// Variables returns the environment variables of a stub that runs in e: those of base, in the form
// of os.Environ, changed by the activation.
//
// LD_LIBRARY_PATH is only for the stub's loader, not for programs that the model starts: the stub
// restores the value in base, or removes the variable if base has none. A Program keeps the value
// in base.
//
// bound: the server's variables, and maxVariables
func (e *Environment) Variables(base []string) []string {
	old := make(map[string]string, 2)
	for _, v := range base {
		if name, value, _ := strings.Cut(v, "="); name == "PATH" || name == "LD_LIBRARY_PATH" {
			old[name] = value
		}
	}
	path := filepath.Dir(e.Python)
	if e.Form != Program {
		path = filepath.Join(e.Directory, "bin")
	}
	if old["PATH"] != "" {
		path += ":" + old["PATH"]
	}
	set := []variable{{"PATH", path}}
	if e.Form != Program {
		set = append(set,
			variable{"VIRTUAL_ENV", e.Directory},
			variable{"VIRTUAL_ENV_PROMPT", "(" + e.Directory + ")"},
			variable{"LD_LIBRARY_PATH", filepath.Join(e.Directory, "lib") + ":" + old["LD_LIBRARY_PATH"]})
	}
	if e.Form == Conda {
		name := e.Directory
		if filepath.Base(filepath.Dir(name)) == "envs" {
			name = filepath.Base(name)
		}
		set = append(set,
			variable{"CONDA_PREFIX", e.Directory},
			variable{"CONDA_DEFAULT_ENV", name},
			variable{"CONDA_SHLVL", "1"},
			variable{"CONDA_PROMPT_MODIFIER", "(" + name + ") "})
		set = append(set, e.variables...)
	}
	replaced := map[string]bool{"PYTHONHOME": true}
	for _, v := range set {
		replaced[v.name] = true
	}
	result := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return replaced[name]
	})
	for i, v := range set {
		later := func(w variable) bool { return w.name == v.name }
		if !slices.ContainsFunc(set[i+1:], later) {
			result = append(result, v.name+"="+v.value)
		}
	}
	return result
}
