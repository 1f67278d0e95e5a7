package nereid

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BackendSettings returns what a backend is told: the settings of all backends and
// over them its own. The server's own ones are among them. A Python-based backend
// has those of "python" too, below its own.
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

// ownSettings returns the BackendSettings of a Python-based backend that is told
// anything which "python" is not, and else nil.
func (o *Options) ownSettings(backend string) map[string]string {
	if len(o.Backends.Settings[backend]) == 0 {
		return nil
	}
	return o.BackendSettings(backend)
}

// batchSetting is a hint for backends that complete configs, which comes last where the server adds it.
const batchSetting = "default-max-batch-size"

// BackendMessage is BackendSettings as Triton's backends get it, JSON: keys in order, and the default batch size last unless
// it was set.
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

// nativeSettings is what a backend in Go is told: BackendSettings with the default batch size, and the same as a message.
func (o *Options) nativeSettings(backend string) (values map[string]string, message string) {
	values = o.BackendSettings(backend)
	if _, set := values[batchSetting]; !set {
		values[batchSetting] = "4"
	}
	return values, o.BackendMessage(backend)
}

// pluginPrefix is what the name of a plugin's program begins with.
const pluginPrefix = "nereid_"

// IsPlugin reports whether there is a plugin of that name: in the backends' directory, or in the folder of a model or
// a version.
func (o *Options) IsPlugin(backend string) bool {
	if backend == "" || backend != filepath.Base(backend) || strings.ContainsAny(backend, `*?[\\`) { // a pattern of Glob
		return false
	}
	file := pluginPrefix + backend
	if _, err := os.Stat(filepath.Join(o.Backends.Directory, backend, file)); err == nil {
		return true
	}
	for _, root := range o.Repository.Paths {
		for _, depth := range []string{"*", "*/*"} {
			if found, _ := filepath.Glob(filepath.Join(root, depth, file)); len(found) > 0 {
				return true
			}
		}
	}
	return false
}

// HasPlugins reports whether there is a plugin of any name: then the settings for all backends may be a plugin's own.
func (o *Options) HasPlugins() bool {
	found, _ := filepath.Glob(filepath.Join(o.Backends.Directory, "*", pluginPrefix+"*"))
	for _, root := range o.Repository.Paths {
		for _, depth := range []string{"*", "*/*"} {
			more, _ := filepath.Glob(filepath.Join(root, depth, pluginPrefix+"*"))
			found = append(found, more...)
		}
	}
	return len(found) > 0
}

// Script returns the model.py of a Python-based backend, "" if the backend is none.
func (o *BackendOptions) Script(backend string) string {
	if backend == "" || backend == "python" || !filepath.IsLocal(backend) {
		return ""
	}
	script := filepath.Join(o.Directory, backend, "model.py")
	if _, err := os.Stat(script); err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(o.Directory, backend, pluginPrefix+backend)); err == nil {
		return "" // a plugin comes first
	}
	return script
}
