package repository_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
)

// shownParts expands the abbreviations of the record.
var shownParts = strings.NewReplacer(
	"<start>", `{"name":"m","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":`,
	"<none>", `"input":[],"output":[]`,
	"<middle>", `"batch_input":[],"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false}`,
	"<end>", `"instance_group":[{"name":"m","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}`,
)

// laterRefusal matches errors that follow the check of the config: a missing backend or composing
// model.
var laterRefusal = regexp.MustCompile(`unable to find backend|contains models that are not available`)

// TestRecordedConfigurationsBecomeTheSame reads, completes and checks configs that were recorded
// with Triton and compares the results. None of them needs a model's code.
func TestRecordedConfigurationsBecomeTheSame(t *testing.T) {
	for i, c := range recordedCases(t) {
		t.Run(fmt.Sprintf("%d %s", i, c.Config), func(t *testing.T) {
			poll, load, shown := c.Outcome(t)
			if c.Shown != "" {
				c.Shown = repository.Canonical(t, []byte(shownParts.Replace(c.Shown)), false)
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

func recordedCases(t *testing.T) []repository.RecordedCase {
	t.Helper()
	text, err := os.ReadFile("../config/testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []repository.RecordedCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 500 {
		t.Fatalf("../config/testdata/recorded.json: got %d cases, want all", len(cases))
	}
	return cases
}
