package flags

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
)

// StrangeSettings lists the backend settings that nothing reads. Plugins may have any settings.
func (o *Options) StrangeSettings() []string {
	common := []string{"auto-complete-config", "backend-directory", "min-compute-capability", "default-max-batch-size"}
	ofPython := slices.Concat(common, python.Settings())
	ofAll := slices.Concat(ofPython, native.Settings())
	var list []string
	for _, backend := range slices.Sorted(maps.Keys(o.Backends.Settings)) {
		for _, key := range slices.Sorted(maps.Keys(o.Backends.Settings[backend])) {
			named := backend != "" && backend != "python"
			switch {
			case o.Backends.Linked[backend] != nil, named && o.IsPlugin(backend): // may have any settings
			case named && o.Backends.Script(backend) == "":
				list = append(list, fmt.Sprintf("--backend-config=%s,%s: there is no backend '%s'", backend, key, backend))
			case slices.Contains(ofPython, key), backend == "" && (slices.Contains(ofAll, key) || len(o.Backends.Linked) > 0 || o.HasPlugins()):
			default:
				list = append(list, fmt.Sprintf("--backend-config: the setting '%s' is not known", key))
			}
		}
	}
	return list
}
