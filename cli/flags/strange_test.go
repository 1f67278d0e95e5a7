package flags_test

import (
	"io"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestStrangeSettingsAreNamed(t *testing.T) {
	o := &flags.Options{Options: nereid.Options{Backends: nereid.BackendOptions{Directory: testkit.WriteFiles(t, t.TempDir(), map[string]string{"based/model.py": ""}), Settings: map[string]map[string]string{
		"":       {"default-max-batch-size": "4", "what": "1"},
		"python": {"python-executable": "/p", "shm-default-byte-size": "2M", "shm-max-byte-size": "2097152", "exec-timeout-seconds": "3"},
		"pyton":  {"stub-template": "off"},
		"based":  {"stub-template": "of", "sub-template": "off", "shm-max-byte-size": "2M"},
	}}}}
	want := []string{
		"--backend-config: the setting 'what' is not known",
		"--backend-config=based: shm-max-byte-size is \"2M\", want a whole number without a unit, 1 to 9223372036854775807",
		"--backend-config=based: stub-template is \"of\", want on or off",
		"--backend-config: the setting 'sub-template' is not known; did you mean 'stub-template'?",
		"--backend-config: the setting 'exec-timeout-seconds' is not known; did you mean 'execute-timeout-seconds'?",
		"--backend-config=python: shm-default-byte-size is \"2M\", want a whole number without a unit, 1048576 to 9223372036854775807",
		"--backend-config=pyton,stub-template: there is no backend 'pyton'; did you mean 'python'?",
	}
	if got := o.StrangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnknownTraceSettingsAreNamed checks that unknown trace settings, which Triton accepts, are
// named together with the known ones.
func TestUnknownTraceSettingsAreNamed(t *testing.T) {
	o, err := flags.Parse([]string{"--trace-config=foo=1", "--trace-config=rate=5", "--trace-config=triton,url=u", "--trace-config=triton,file=f",
		"--trace-config=opentelemetry,url=u", "--trace-config=opentelemetry,file=f"}, noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--trace-config=foo: the setting 'foo' is not known, want mode, level, rate, count",
		"--trace-config=opentelemetry,file: the setting 'file' is not known, want url, resource, bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size",
		"--trace-config=triton,url: the setting 'url' is not known, want file, log-frequency, max-bytes",
	}
	if got := o.StrangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTruncatedNumbersAreNamed checks that a number with a unit is read as in Triton, but named.
func TestTruncatedNumbersAreNamed(t *testing.T) {
	o, err := flags.Parse([]string{"--http-max-input-size=2M", "--http-port= +80", "--log-verbose=true", "--id=5x"}, noEnv, io.Discard)
	if err != nil || o.HTTP.MaxInputBytes != 2 {
		t.Fatalf("got %+v and error %v, want a size of 2", o, err)
	}
	want := []string{`--http-max-input-size is "2M", of which only 2 counts: want a whole number without a unit`}
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
			"": own, "plugged": {"what": "1", "start-timeout-seconds": "5s"}, "ofmodel": own, "ofversion": own, "of*": {"what": "1"}, "based": {"start-timeout-seconds": "5"},
		}},
	}}
	want := []string{
		"--backend-config: the setting 'start-timeout-seconds' is not known; did you mean 'stub-timeout-seconds'?",
		"--backend-config=of*,what: there is no backend 'of*'",
		"--backend-config=plugged: start-timeout-seconds is \"5s\", want a whole number without a unit, 1 to 9223372036",
	}
	if got := o.StrangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
