package flags

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
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
				list = append(list, fmt.Sprintf("--backend-config=%s,%s: there is no backend '%s'", backend, key, backend))
			case row != nil:
				if err := row.Check(o.Backends.Settings[backend][key]); err != nil {
					list = append(list, fmt.Sprintf("%s: %v", strings.TrimSuffix("--backend-config="+backend, "="), err))
				}
			case !ownKeys && !slices.Contains(common, key):
				list = append(list, fmt.Sprintf("--backend-config: the setting '%s' is not known", key))
			}
		}
	}
	return slices.Concat(list, o.Tracing.strange(), o.Truncated)
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
