package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/backend/python"
)

// strangeSettings lists the settings of backends that nothing reads.
func (o *Options) strangeSettings() []string {
	common := []string{"auto-complete-config", "backend-directory", "min-compute-capability", "default-max-batch-size"}
	var list []string
	for _, backend := range slices.Sorted(maps.Keys(o.Backends.Settings)) {
		for _, key := range slices.Sorted(maps.Keys(o.Backends.Settings[backend])) {
			switch {
			case backend != "" && backend != "python" && o.Backends.Script(backend) == "":
				list = append(list, fmt.Sprintf("--backend-config=%s,%s: there is no backend '%s'", backend, key, backend))
			case !slices.Contains(common, key) && !slices.Contains(python.Settings(), key):
				list = append(list, fmt.Sprintf("--backend-config: the setting '%s' is not known", key))
			}
		}
	}
	return list
}

// backendConfigJSON is BackendSettings as backends get it and as the start-up table
// shows it: keys in order, and the default batch size last unless it was set.
func (o *Options) backendConfigJSON(backend string) string {
	settings := o.BackendSettings(backend)
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
