package nereid

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
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

// Script returns the model.py of a Python-based backend, "" if the backend is none.
func (o *BackendOptions) Script(backend string) string {
	if backend == "" || backend == "python" || !filepath.IsLocal(backend) {
		return ""
	}
	script := filepath.Join(o.Directory, backend, "model.py")
	if _, err := os.Stat(script); err != nil {
		return ""
	}
	return script
}
