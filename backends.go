package nereid

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/version"
)

// BackendSettings returns the settings of a backend: the server's own ones, those for all backends,
// those of "python" if the backend is Python-based, and the backend's own. Later ones override
// earlier ones.
func (o *Options) BackendSettings(backend string) map[string]string {
	all := map[string]string{
		"auto-complete-config":   strconv.FormatBool(!o.Repository.DisableAutoCompleteConfig),
		"backend-directory":      o.Backends.Directory,
		"min-compute-capability": strconv.FormatFloat(o.Backends.MinComputeCapability, 'f', 6, 64),
	}
	maps.Copy(all, o.Backends.Settings[""])
	if o.Backends.Script(backend) != "" {
		maps.Copy(all, o.Backends.Settings["python"])
	}
	maps.Copy(all, o.Backends.Settings[backend])
	return all
}

// ownSettings returns the BackendSettings of a Python-based backend that has settings of its own.
// It returns nil if the backend has the settings of "python".
func (o *Options) ownSettings(backend string) map[string]string {
	if len(o.Backends.Settings[backend]) == 0 {
		return nil
	}
	return o.BackendSettings(backend)
}

// batchSetting is a hint for backends that complete configs. It comes last if the server adds it.
const batchSetting = "default-max-batch-size"

// BackendMessage returns BackendSettings as the JSON that Triton's backends receive: keys in order,
// and the default batch size last unless it was set.
func (o *Options) BackendMessage(backend string) string {
	settings := o.BackendSettings(backend)
	keys := slices.Sorted(maps.Keys(settings))
	if _, set := settings[batchSetting]; !set {
		settings[batchSetting] = "4"
		keys = append(keys, batchSetting)
	}
	var b strings.Builder
	b.WriteString(`{"cmdline":{`)
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(key) + ":" + quote(settings[key]))
	}
	b.WriteString("}}")
	return b.String()
}

func quote(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// nativeSettings returns the settings of a Go backend: BackendSettings with the default batch size,
// as a map and as a message.
func (o *Options) nativeSettings(backend string) (values map[string]string, message string) {
	values = o.BackendSettings(backend)
	if _, set := values[batchSetting]; !set {
		values[batchSetting] = "4"
	}
	return values, o.BackendMessage(backend)
}

// IsPlugin reports whether the backend is a plugin: in the backends' directory, or in the folder of
// a model or a version.
func (o *Options) IsPlugin(backend string) bool {
	if backend == "" || backend != filepath.Base(backend) || strings.ContainsAny(backend, `*?[\\`) {
		return false
	}
	return len(version.Plugins(o.Backends.Directory, o.Repository.Paths, backend)) > 0
}

// HasPlugins reports whether there is a plugin of any name. If so, the settings for all backends
// may be meant for it.
func (o *Options) HasPlugins() bool {
	return len(version.Plugins(o.Backends.Directory, o.Repository.Paths, "*")) > 0
}

// BackendNames lists the names of all backends.
func (o *Options) BackendNames() []string {
	names := append(slices.Sorted(maps.Keys(o.Backends.Linked)), config.BackendPython)
	return append(names, version.Named(o.Backends.Directory, o.Repository.Paths)...)
}

// Script returns the model.py of a Python-based backend, or "" for any other backend.
func (o *BackendOptions) Script(backend string) string { return version.Script(o.Directory, backend) }
