package models_test

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestEnsemblesBringTheirModels checks that Examine of an ensemble also reads all its composing
// models and no others, and each model of a cycle once.
func TestEnsemblesBringTheirModels(t *testing.T) {
	directory := t.TempDir()
	step := func(model string) string {
		return "platform: \"ensemble\" ensemble_scheduling { step { model_name: \"" + model + "\" model_version: -1 input_map { key: \"A\" value: \"A\" } output_map { key: \"B\" value: \"B\" } } }\n" +
			"input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] } output { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] }"
	}
	testkit.WriteFiles(t, directory, map[string]string{
		"outer/config.pbtxt": step("inner"), "outer/1/x": "", "inner/config.pbtxt": step("leaf"), "inner/1/x": "",
		"leaf/config.pbtxt": "backend: \"none\" input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] } output { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] }", "leaf/1/x": "",
		"other/config.pbtxt": "broken", "one/config.pbtxt": step("two"), "one/1/x": "", "two/config.pbtxt": step("one"), "two/1/x": "",
	})
	roots, err := repository.Open([]string{directory}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer roots.Close()
	r := models.NewRegistry(models.RegistryConfig{Repository: roots})
	for name, want := range map[string][]string{
		"outer": {"inner", "leaf", "outer"}, "inner": {"inner", "leaf"}, "leaf": {"leaf"}, "one": {"one", "two"}, "absent": {"absent"},
		"": {"inner", "leaf", "one", "other", "outer", "two"},
	} {
		var names, got []string
		if name != "" {
			names = []string{name}
		}
		list, err := r.Examine(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			got = append(got, m.Identity.Name)
			wrong := len(m.Errors) > 0 || m.Description != nil && len(m.Versions[1].Errors) > 0
			if faulty := []string{"leaf", "other", "absent", "one", "two"}; wrong != slices.Contains(faulty, m.Identity.Name) {
				t.Errorf("%s: got errors %v, %v", m.Identity.Name, m.Errors, m.Versions)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
