package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid"
)

func TestStrangeSettingsAreNamed(t *testing.T) {
	o := &Options{Options: nereid.Options{Backends: nereid.BackendOptions{Directory: backendDirectory(t, "based"), Settings: map[string]map[string]string{
		"":       {"default-max-batch-size": "4", "what": "1"},
		"python": {"python-executable": "/p", "shm-default-byte-size": "1", "exec-timeout-seconds": "3"},
		"pyton":  {"stub-template": "off"},
		"based":  {"stub-template": "off", "sub-template": "off"},
	}}}}
	want := []string{
		"--backend-config: the setting 'what' is not known",
		"--backend-config: the setting 'sub-template' is not known",
		"--backend-config: the setting 'exec-timeout-seconds' is not known",
		"--backend-config=pyton,stub-template: there is no backend 'pyton'",
	}
	if got := o.strangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// backendDirectory makes a directory with one Python-based backend.
func backendDirectory(t *testing.T, name string) string {
	t.Helper()
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, name, "model.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return directory
}
