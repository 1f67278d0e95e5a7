package flags_test

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestStrangeSettingsAreNamed(t *testing.T) {
	o := &flags.Options{Options: nereid.Options{Backends: nereid.BackendOptions{Directory: testkit.WriteFiles(t, t.TempDir(), map[string]string{"based/model.py": ""}), Settings: map[string]map[string]string{
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
	if got := o.StrangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSettingsOfPluginsAreTheirOwn checks that a plugin's settings cause no warning, whether the
// plugin is in the backends' directory or in the directory of a model or version. Settings for all
// backends may also be meant for a plugin.
func TestSettingsOfPluginsAreTheirOwn(t *testing.T) {
	directory, repository := testkit.WriteFiles(t, t.TempDir(), map[string]string{"based/model.py": ""}), t.TempDir()
	testkit.WriteFiles(t, directory, map[string]string{"plugged/nereid_plugged": ""})
	testkit.WriteFiles(t, repository, map[string]string{"m/nereid_ofmodel": "", "m/1/nereid_ofversion": ""})
	own := map[string]string{"what": "1", "start-timeout-seconds": "5"}
	o := &flags.Options{Options: nereid.Options{
		Repository: nereid.RepositoryOptions{Paths: []string{repository}},
		Backends: nereid.BackendOptions{Directory: directory, Settings: map[string]map[string]string{
			"": own, "plugged": own, "ofmodel": own, "ofversion": own, "of*": {"what": "1"}, "based": {"start-timeout-seconds": "5"},
		}},
	}}
	want := []string{
		"--backend-config: the setting 'start-timeout-seconds' is not known",
		"--backend-config=of*,what: there is no backend 'of*'",
	}
	if got := o.StrangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
