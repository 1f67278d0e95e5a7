package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/backend/python"
)

// settingsOf returns what a backend is told: the settings of all backends and
// over them its own. The server's own ones are among them. A Python-based backend
// has those of "python" too, below its own.
func (o *Options) settingsOf(backend string) map[string]string {
	all := map[string]string{
		"auto-complete-config":   strconv.FormatBool(!o.Repository.DisableAutoCompleteConfig),
		"backend-directory":      o.Backends.Directory,
		"min-compute-capability": strconv.FormatFloat(o.Memory.MinComputeCapability, 'f', 6, 64),
	}
	maps.Copy(all, o.Backends.Settings[""])
	if o.scriptOf(backend) != "" {
		maps.Copy(all, o.Backends.Settings["python"])
	}
	maps.Copy(all, o.Backends.Settings[backend])
	return all
}

// ownSettingsOf is settingsOf for a Python-based backend that is told anything
// which "python" is not, and else nil.
func (o *Options) ownSettingsOf(backend string) map[string]string {
	if len(o.Backends.Settings[backend]) == 0 {
		return nil
	}
	return o.settingsOf(backend)
}

// scriptOf is the model.py of a Python-based backend, "" if the backend is none.
func (o *Options) scriptOf(backend string) string {
	if backend == "" || backend == "python" || !filepath.IsLocal(backend) {
		return ""
	}
	script := filepath.Join(o.Backends.Directory, backend, "model.py")
	if _, err := os.Stat(script); err != nil {
		return ""
	}
	return script
}

// strangeSettings lists the settings of backends that nothing reads.
func (o *Options) strangeSettings() []string {
	common := []string{"auto-complete-config", "backend-directory", "min-compute-capability", "default-max-batch-size"}
	var list []string
	for _, backend := range slices.Sorted(maps.Keys(o.Backends.Settings)) {
		for _, key := range slices.Sorted(maps.Keys(o.Backends.Settings[backend])) {
			switch {
			case backend != "" && backend != "python" && o.scriptOf(backend) == "":
				list = append(list, fmt.Sprintf("--backend-config=%s,%s: there is no backend '%s'", backend, key, backend))
			case !slices.Contains(common, key) && !slices.Contains(python.Settings(), key):
				list = append(list, fmt.Sprintf("--backend-config: the setting '%s' is not known", key))
			}
		}
	}
	return list
}

// backendConfigJSON is settingsOf as backends get it and as the start-up table
// shows it: keys in order, and the default batch size last unless it was set.
func (o *Options) backendConfigJSON(backend string) string {
	settings := o.settingsOf(backend)
	keys := slices.Sorted(maps.Keys(settings))
	const batch = "default-max-batch-size"
	if _, set := settings[batch]; !set {
		settings[batch] = "4"
		keys = append(keys, batch)
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
