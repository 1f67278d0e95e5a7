package flags

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/server/tracing"
)

// StrangeSettings lists the backend settings that nothing reads or that have bad values, unknown
// trace settings, and numbers of which only the beginning counts. Plugins may have any settings of
// their own.
func (o *Options) StrangeSettings() []string {
	common := []string{"auto-complete-config", "backend-directory", "min-compute-capability", "default-max-batch-size"}
	ofPython, ofPlugins := python.Settings(), native.Settings()
	ofAll := slices.Concat(ofPython, ofPlugins)
	var list []string
	for _, backend := range slices.Sorted(maps.Keys(o.Backends.Settings)) {
		named := backend != "" && backend != "python"
		ownKeys, known := false, ofPython
		switch {
		case o.Backends.Linked[backend] != nil:
			ownKeys, known = true, nil
		case named && o.IsPlugin(backend):
			ownKeys, known = true, ofPlugins
		case backend == "":
			ownKeys, known = len(o.Backends.Linked) > 0 || o.HasPlugins(), ofAll
		}
		for _, key := range slices.Sorted(maps.Keys(o.Backends.Settings[backend])) {
			row := known.Find(key)
			switch {
			case !ownKeys && named && o.Backends.Script(backend) == "":
				list = append(list, fmt.Sprintf("--backend-config=%s,%s: there is no backend '%s'%s", backend, key, backend, meant(backend, o.BackendNames())))
			case row != nil:
				if err := row.Check(o.Backends.Settings[backend][key]); err != nil {
					list = append(list, fmt.Sprintf("%s: %v", strings.TrimSuffix("--backend-config="+backend, "="), err))
				}
			case !ownKeys && !slices.Contains(common, key):
				list = append(list, fmt.Sprintf("--backend-config: the setting '%s' is not known%s", key, meant(key, slices.Concat(known.Keys(), common))))
			}
		}
	}
	return slices.Concat(list, o.Tracing.strange(), o.Truncated)
}

// meant asks whether the known word most similar to a misspelt one was meant, or returns "".
func meant(word string, known []string) string {
	if near := spelling.Nearest(word, known); near != "" {
		return "; did you mean '" + near + "'?"
	}
	return ""
}

// checkBackends returns the error about a setting with which the Python backend, or a backend based
// on it, could run no model.
func (o *Options) checkBackends() error {
	for _, backend := range append(slices.Sorted(maps.Keys(o.Backends.Settings)), "python") {
		all := o.BackendSettings(backend)
		_, err := python.ParseConfig(all)
		if err == nil || backend != "python" && o.Backends.Script(backend) == "" {
			continue
		}
		flag := "--backend-config=" + backend
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if _, bad := python.ParseConfig(map[string]string{key: all[key]}); bad != nil {
				flag, err = strings.TrimSuffix("--backend-config="+o.owner(backend, key), "="), cmp.Or(python.Settings().Find(key).Check(all[key]), bad)
				break
			}
		}
		return infer.Errorf(infer.InvalidArg, "%s: %s", flag, strings.TrimPrefix(err.Error(), "--backend-config: "))
	}
	return nil
}

// owner returns the backend whose --backend-config sets a key of a backend: "" for all backends.
func (o *Options) owner(backend, key string) string {
	for _, name := range []string{backend, "python"} {
		if _, set := o.Backends.Settings[name][key]; set {
			return name
		}
	}
	return ""
}

// strange lists the settings of --trace-config that have no effect.
func (t *TraceOptions) strange() (list []string) {
	for _, mode := range slices.Sorted(maps.Keys(t.Settings)) {
		known := tracing.Mode(mode).Keys()
		if mode == "" {
			known = []string{"mode", "level", "rate", "count"}
		}
		for _, s := range t.Settings[mode] {
			if !slices.Contains(known, s.Key) {
				flag := "--trace-config=" + strings.TrimPrefix(mode+","+s.Key, ",")
				list = append(list, fmt.Sprintf("%s: the setting '%s' is not known, want %s", flag, s.Key, strings.Join(known, ", ")))
			}
		}
	}
	return list
}
