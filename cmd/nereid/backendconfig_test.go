package main

import (
	"slices"
	"testing"
)

func TestStrangeSettings(t *testing.T) {
	o := &Options{Backends: BackendOptions{Settings: map[string]map[string]string{
		"":       {"default-max-batch-size": "4", "what": "1"},
		"python": {"python-executable": "/p", "shm-default-byte-size": "1", "exec-timeout-seconds": "3"},
		"pyton":  {"stub-template": "off"},
	}}}
	want := []string{
		"--backend-config: the setting 'what' is not known",
		"--backend-config: the setting 'exec-timeout-seconds' is not known",
		"--backend-config=pyton,stub-template: there is no backend 'pyton'",
	}
	if got := o.strangeSettings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
