package nereid_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestSettingsOfPythonBased checks that a Python-based backend gets the settings of "python",
// overridden by its own.
func TestSettingsOfPythonBased(t *testing.T) {
	o := &nereid.Options{Backends: nereid.BackendOptions{Directory: testkit.WriteFiles(t, t.TempDir(), map[string]string{"based/model.py": ""}), Settings: map[string]map[string]string{
		"":       {"a": "all", "b": "all", "c": "all"},
		"python": {"b": "python", "c": "python"},
		"based":  {"c": "based"},
		"native": {"c": "native"},
	}}}
	for backend, want := range map[string]string{"based": "all python based", "native": "all all native", "python": "all python python", "../based": "all all all"} {
		s := o.BackendSettings(backend)
		if got := s["a"] + " " + s["b"] + " " + s["c"]; got != want {
			t.Errorf("settings of %s: got %s, want %s", backend, got, want)
		}
	}
	if own := o.OwnSettings("based"); own["c"] != "based" || own["b"] != "python" {
		t.Errorf("own settings: got %v", own)
	}
	if values, message := o.NativeSettings("native"); values["c"] != "native" || values["default-max-batch-size"] != "4" || !strings.HasSuffix(message, `,"default-max-batch-size":"4"}}`) {
		t.Errorf("settings of a backend in Go: got %v, %s", values, message)
	}
	delete(o.Backends.Settings, "based")
	if own := o.OwnSettings("based"); own != nil {
		t.Errorf("without settings: got %v, want none", own)
	}
}
