package repository

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/config"
)

// mapFields are the objects whose keys are data: their order says nothing.
var mapFields = []string{
	"cc_model_filenames", "metric_tags", "parameters", "inputs", "input_map", "output_map", "priority_queue_policy",
}

// canonical rewrites JSON so that two texts are equal if they differ only in
// the order of a map's keys.
func canonical(t *testing.T, raw []byte, mapping bool) string {
	t.Helper()
	switch raw[0] {
	case '[':
		var items []json.RawMessage
		mustUnmarshal(t, raw, &items)
		texts := make([]string, len(items))
		for i, item := range items {
			texts[i] = canonical(t, item, false)
		}
		return "[" + strings.Join(texts, ",") + "]"
	case '{':
		var fields []string
		decoder := json.NewDecoder(bytes.NewReader(raw))
		if _, err := decoder.Token(); err != nil {
			t.Fatal(err)
		}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				t.Fatal(err)
			}
			var value json.RawMessage
			if err := decoder.Decode(&value); err != nil {
				t.Fatal(err)
			}
			fields = append(fields, key.(string)+":"+canonical(t, value, slices.Contains(mapFields, key.(string))))
		}
		if mapping {
			slices.Sort(fields)
		}
		return "{" + strings.Join(fields, ",") + "}"
	}
	return string(raw)
}

func mustUnmarshal(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// TestConfigJSONGolden serves each configuration in ../config/testdata/configjson as the
// model of that name. The JSON beside it is what Triton showed for it.
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
			repository := openRepository(t, Options{}, map[string]string{
				name + "/config.pbtxt": string(text),
				name + "/1/model.py":   "",
				name + "/labels.txt":   "a\nb\n",
			})
			description, err := readModel(repository, name)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _, err := description.Finish(nil)
			if err != nil {
				t.Fatal(err)
			}
			// A field that the recorded release does not have yet.
			shown := bytes.Replace(got, []byte(`,"max_inflight_requests":0`), nil, 1)
			if canonical(t, shown, false) != canonical(t, want, false) {
				t.Errorf("config:\n got %s\nwant %s", got, want)
			}
			// The shown form can be given back, and is then shown unchanged.
			again, err := config.ParseJSON(got)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := config.JSON(again); err != nil || !bytes.Equal(back, got) {
				t.Errorf("parsed and shown again (%v):\n got %s\nwant %s", err, back, got)
			}
			if answered, _, _, err := description.Finish(got); err != nil {
				t.Errorf("Finish with an unchanged answer: got error %v, want none", err)
			} else if back, _ := config.JSON(answered); !bytes.Equal(back, got) {
				t.Errorf("Finish with an unchanged answer:\n got %s\nwant %s", back, got)
			}
		})
	}
}

// openRepository makes a repository of files; a name that ends in a slash is a
// directory.
func openRepository(t *testing.T, options Options, files map[string]string) *Roots {
	t.Helper()
	root := t.TempDir()
	testkit.WriteFiles(t, root, files)
	repository, err := Open([]string{root}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repository.Close)
	return repository
}

// readModel reads the model of a name.
func readModel(r *Roots, name string) (*Description, error) {
	d, _, err := r.Read(Identity{Name: name}, nil)
	return d, err
}
