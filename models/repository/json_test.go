package repository_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestConfigJSONGolden serves each config in ../config/testdata/configjson as the model of that
// name and compares it with the JSON that Triton showed.
func TestConfigJSONGolden(t *testing.T) {
	files, err := filepath.Glob("../config/testdata/configjson/*.pbtxt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations in ../config/testdata/configjson (%v)", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pbtxt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".pbtxt") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			opened := repository.OpenRepository(t, repository.Options{}, map[string]string{
				name + "/config.pbtxt": string(text),
				name + "/1/model.py":   "",
				name + "/labels.txt":   "a\nb\n",
			})
			description, err := repository.ReadModel(opened, name)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _, err := description.Finish(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			// The recorded release does not have this field yet.
			shown := bytes.Replace(got, []byte(`,"max_inflight_requests":0`), nil, 1)
			if repository.Canonical(t, shown, false) != repository.Canonical(t, want, false) {
				t.Errorf("config:\n got %s\nwant %s", got, want)
			}
			// The shown JSON can be parsed again and then gives the same JSON.
			again, err := config.ParseJSON(got)
			if err != nil {
				t.Fatal(err)
			}
			if back := config.JSON(again); !bytes.Equal(back, got) {
				t.Errorf("parsed and shown again:\n got %s\nwant %s", back, got)
			}
			if answered, _, _, err := description.Finish(nil, got); err != nil {
				t.Errorf("Finish with an unchanged answer: got error %v, want none", err)
			} else if back := config.JSON(answered); !bytes.Equal(back, got) {
				t.Errorf("Finish with an unchanged answer:\n got %s\nwant %s", back, got)
			}
		})
	}
}
