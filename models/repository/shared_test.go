package repository

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/config"
)

// mapFields are the JSON objects whose keys are data, so that their order has no meaning.
var mapFields = []string{
	"cc_model_filenames", "metric_tags", "parameters", "inputs", "input_map", "output_map", "priority_queue_policy",
}

// Canonical rewrites JSON so that texts are equal if they differ only in the order of a map's keys.
func Canonical(t *testing.T, raw []byte, mapping bool) string {
	t.Helper()
	switch raw[0] {
	case '[':
		var items []json.RawMessage
		MustUnmarshal(t, raw, &items)
		texts := make([]string, len(items))
		for i, item := range items {
			texts[i] = Canonical(t, item, false)
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
			fields = append(fields, key.(string)+":"+Canonical(t, value, slices.Contains(mapFields, key.(string))))
		}
		if mapping {
			slices.Sort(fields)
		}
		return "{" + strings.Join(fields, ",") + "}"
	}
	return string(raw)
}

func MustUnmarshal(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// OpenRepository opens a repository with these files. A name that ends in a slash is a directory.
func OpenRepository(t *testing.T, options Options, files map[string]string) *Roots {
	t.Helper()
	root := testkit.WriteFiles(t, t.TempDir(), files)
	repository, err := Open([]string{root}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repository.Close)
	return repository
}

// ReadModel reads a model by its name.
func ReadModel(r *Roots, name string) (*Description, error) {
	d, _, err := r.Read(Identity{Name: name}, nil)
	return d, err
}

// RecordedCase is a config and Triton 2.51's results for it. The model's name is NAME in the config
// and m in the results.
type RecordedCase struct {
	Config   string
	Files    map[string]string // more files of the model's directory; "-" removes config.pbtxt or model.py
	Override string            // the config in the load request
	Strict   bool              // auto-complete is off, and configs/other.pbtxt is read if it exists
	Differs  string            // the reason if this server differs
	Poll     string            // the error logged by the poll
	Load     string            // the error of the load
	Shown    string            // the result of the config endpoint
}

// Outcome loads the case's model as far as its config is concerned.
func (c RecordedCase) Outcome(t *testing.T) (poll, load, shown string) {
	t.Helper()
	files := map[string]string{"m/config.pbtxt": c.Config, "m/1/model.py": ""}
	for path, text := range c.Files {
		files["m/"+path] = text
	}
	for path, text := range files {
		files[path] = strings.ReplaceAll(text, "NAME", "m")
		if text == "-" {
			delete(files, path)
		}
	}
	files["m/"] = ""
	options := Options{DisableAutoComplete: c.Strict}
	if c.Strict {
		options.ConfigName = "other"
	}
	repository := OpenRepository(t, options, files)
	shorten := func(s string) string { return strings.ReplaceAll(s, repository.all()[0].path, "ROOT") }
	read := func() (*Description, error) { return ReadModel(repository, "m") }
	if c.Override != "" {
		read = func() (*Description, error) {
			config, err := config.ParseJSON([]byte(strings.ReplaceAll(c.Override, "NAME", "m")))
			if err != nil {
				return nil, fmt.Errorf("Invalid config override: %w", err) //nolint:revive // Triton's text
			}
			d, _, err := repository.Read(Identity{Name: "m"}, config)
			return d, err
		}
	}
	description, err := read()
	if err != nil {
		return shorten(infer.Detail(err)), "", ""
	}
	if err := description.Check(); err != nil {
		if len(description.Versions) == 0 {
			return "", err.Error(), ""
		}
		return "", infer.AsError(err).Status(), ""
	}
	_, served, _, err := description.Finish(nil, nil)
	if err != nil {
		return "", shorten(infer.AsError(err).Detailed().Status()), ""
	}
	return "", "", Canonical(t, []byte(strings.Replace(string(served), `,"max_inflight_requests":0`, "", 1)), false)
}

// Refusal loads a model m as far as its config is concerned and returns the error, with ROOT for
// the repository's path.
func Refusal(t *testing.T, options Options, config string) (poll, load string) {
	t.Helper()
	repository := OpenRepository(t, options, map[string]string{"m/config.pbtxt": config, "m/1/model.py": ""})
	shorten := func(s string) string { return strings.ReplaceAll(s, repository.all()[0].path, "ROOT") }
	description, err := ReadModel(repository, "m")
	if err != nil {
		return shorten(infer.AsError(err).Detailed().Message), ""
	}
	if err := description.Check(); err != nil {
		if len(description.Versions) == 0 {
			return "", err.Error()
		}
		return "", infer.AsError(err).Status()
	}
	if _, _, _, err := description.Finish(nil, nil); err != nil {
		return "", shorten(infer.AsError(err).Detailed().Status())
	}
	return "", ""
}

// Layout opens an operator's repository and returns the paths of two more that can be registered.
func Layout(t *testing.T, options Options) (r *Roots, first, second string) {
	t.Helper()
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"own/shown/1/": "", "own/part/1/": "",
		"a/dir/1/model.py": "", "a/dir/config.pbtxt": `name: "third"`, "a/part/1/": "", "a/shown/1/": "",
		"b/dir/1/model.py": "",
	})
	r, err := Open([]string{filepath.Join(root, "own")}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, filepath.Join(root, "a"), filepath.Join(root, "b")
}

func WantStatus(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = infer.AsError(err).Status()
	}
	if got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
}
