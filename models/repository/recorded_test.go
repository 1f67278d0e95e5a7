package repository

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/config"
)

// recordedCase is a configuration and what Triton 2.51 made of it. The name of
// the model stands in it as NAME, and as m in the answers.
type recordedCase struct {
	Config   string
	Files    map[string]string // more of the model's directory; "-": not even config.pbtxt or model.py
	Override string            // the configuration that came with the request
	Strict   bool              // auto-complete is off, and configs/other.pbtxt is read where it exists
	Differs  string            // why this server does otherwise
	Poll     string            // logged when it was read
	Load     string            // refused the load
	Shown    string            // by the config endpoint
}

// shownParts are the parts of most configurations, which the record abbreviates.
var shownParts = strings.NewReplacer(
	"<start>", `{"name":"m","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":`,
	"<none>", `"input":[],"output":[]`,
	"<middle>", `"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false}`,
	"<end>", `"instance_group":[{"name":"m","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}`,
)

// laterRefusal matches refusals after the configuration was accepted: which
// backend and which models it needs.
var laterRefusal = regexp.MustCompile(`unable to find backend|contains models that are not available`)

// TestRecordedConfigurationsBecomeTheSame reads, completes and checks the configurations that
// Triton was asked to load, none of which needs the model's own code.
func TestRecordedConfigurationsBecomeTheSame(t *testing.T) {
	for i, c := range recordedCases(t) {
		t.Run(fmt.Sprintf("%d %s", i, c.Config), func(t *testing.T) {
			poll, load, shown := c.outcome(t)
			if c.Shown != "" {
				c.Shown = canonical(t, []byte(shownParts.Replace(c.Shown)), false)
			}
			if laterRefusal.MatchString(c.Load) && load == "" && poll == "" {
				return
			}
			same := poll == c.Poll && load == c.Load && shown == c.Shown
			switch {
			case same && c.Differs != "":
				t.Errorf("said to differ (%s), and does not", c.Differs)
			case !same && c.Differs == "":
				t.Errorf("%s %v %s:\n got poll %q, load %q, config %s\nwant poll %q, load %q, config %s",
					c.Config, c.Files, c.Override, poll, load, shown, c.Poll, c.Load, c.Shown)
			}
		})
	}
}

func recordedCases(t *testing.T) []recordedCase {
	t.Helper()
	text, err := os.ReadFile("../config/testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []recordedCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 500 {
		t.Fatalf("../config/testdata/recorded.json: got %d cases, want all", len(cases))
	}
	return cases
}

// outcome loads the case's model as far as its configuration goes.
func (c recordedCase) outcome(t *testing.T) (poll, load, shown string) {
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
	repository := openRepository(t, options, files)
	shorten := func(s string) string { return strings.ReplaceAll(s, repository.all()[0].path, "ROOT") }
	read := func() (*Description, error) { return readModel(repository, "m") }
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
	_, served, _, err := description.Finish(nil)
	if err != nil {
		return "", shorten(infer.AsError(err).Detailed().Status()), ""
	}
	return "", "", canonical(t, []byte(strings.Replace(string(served), `,"max_inflight_requests":0`, "", 1)), false)
}
