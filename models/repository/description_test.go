package repository_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestAutoCompleteBecomesTheConfig has one case for each effect of auto_complete_config, named
// after it. first is the config that Triton passed to the model, answer the config that the model
// returned, final the served config, and load Triton's error. refused is the error with which this
// server fails the load where Triton ignores the model's config.
func TestAutoCompleteBecomesTheConfig(t *testing.T) {
	text, err := os.ReadFile("testdata/autocomplete.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Name, Config, First, Answer, Final, Load, Refused string }
	repository.MustUnmarshal(t, text, &cases)
	if len(cases) < 30 {
		t.Fatalf("testdata/autocomplete.json: got %d cases, want all", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			opened := repository.OpenRepository(t, repository.Options{}, map[string]string{
				"m/config.pbtxt": c.Config, "m/1/model.py": "", "m/labels.txt": "a\n\nb",
			})
			description, err := repository.ReadModel(opened, "m")
			if err != nil {
				t.Fatal(err)
			}
			first := config.JSON(description.Config)
			if got, want := repository.Canonical(t, first, false), repository.Canonical(t, []byte(c.First), false); got != want {
				t.Errorf("config before:\n got %s\nwant %s", got, want)
			}
			_, final, _, err := description.Finish(nil, []byte(c.Answer))
			if err != nil {
				if got := infer.AsError(err).Status(); got != c.Load+c.Refused {
					t.Fatalf("Finish: got error %q, want %q", got, c.Load+c.Refused)
				}
				return
			}
			if c.Load+c.Refused != "" {
				t.Fatalf("Finish: got no error, want %q", c.Load+c.Refused)
			}
			if got, want := repository.Canonical(t, final, false), repository.Canonical(t, []byte(c.Final), false); got != want {
				t.Errorf("config after:\n got %s\nwant %s", got, want)
			}
		})
	}
}

// TestFinishRefusesBadAnswers checks the errors for auto-completed configs that fail the load.
func TestFinishRefusesBadAnswers(t *testing.T) {
	opened := repository.OpenRepository(t, repository.Options{}, map[string]string{
		"m/config.pbtxt": `backend: "python" dynamic_batching { } max_batch_size: 2`, "m/1/model.py": "",
	})
	description, err := repository.ReadModel(opened, "m")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, answer, want string }{
		{"nothing", "", ""},
		{"same scheduler", `{"dynamic_batching":{},"max_batch_size":3}`, ""},
		{"no scheduler", `{"max_batch_size":3}`, "Cannot update scheduling choice from 11 to 11 when auto-completing."},
		{"other scheduler", `{"sequence_batching":{}}`, "Cannot update scheduling choice from 11 to 11 when auto-completing."},
		{"unknown field", `{"foo":1}`, "foo: Cannot find field."},
		{"no integer", `{"max_batch_size":4.5}`, "(max_batch_size): invalid value 4.5 for type TYPE_INT32"},
		{"no dims", `{"dynamic_batching":{},"max_batch_size":2,"input":[{"name":"X","data_type":"TYPE_INT8"}]}`, "model input 'X' must specify 'dims' for m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var answer []byte
			if c.answer != "" {
				answer = []byte(c.answer)
			}
			_, _, _, err := description.Finish(nil, answer)
			got := ""
			if err != nil {
				got = infer.AsError(err).Message
			}
			if got != c.want {
				t.Errorf("Finish: got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLabelsAreReadFromTheirFile(t *testing.T) {
	opened := repository.OpenRepository(t, repository.Options{}, map[string]string{
		"m/config.pbtxt": `backend: "python"
			output { name: "A" data_type: TYPE_FP32 dims: 1 label_filename: "labels.txt" }
			output { name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "/more/b.txt" }
			output { name: "C" data_type: TYPE_FP32 dims: 1 }`,
		"m/1/model.py": "", "m/labels.txt": "cat\n\ndog\r\n", "m/more/b.txt": "one",
	})
	description, err := repository.ReadModel(opened, "m")
	if err != nil {
		t.Fatal(err)
	}
	_, _, got, err := description.Finish(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"A": {"cat", "", "dog\r"}, "B": {"one"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("labels: got %q, want %q", got, want)
	}
}

// TestBucketsOfOtherFamiliesAreWarnedOf checks that buckets for a family other than the
// first-response histogram cause a warning.
func TestBucketsOfOtherFamiliesAreWarnedOf(t *testing.T) {
	control := func(family string) string {
		return `metric_control { metric_identifier { family: "` + family + `" } histogram_options { buckets: 1 } } `
	}
	opened := repository.OpenRepository(t, repository.Options{}, map[string]string{
		"m/config.pbtxt": `backend: "python" model_metrics { ` + control("nv_inference_first_response_histogram_ms") + control("other") + `}`, "m/1/model.py": "",
	})
	description, err := repository.ReadModel(opened, "m")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"model 'm' sets the buckets of metric family 'other', which has no buckets that a model can set"}
	if !slices.Equal(description.Warnings, want) {
		t.Errorf("warnings: got %q, want %q", description.Warnings, want)
	}
}

func TestComposingNamesModelsAndVersions(t *testing.T) {
	config, err := config.ParseText("config.pbtxt", []byte(`name: "e" platform: "ensemble" ensemble_scheduling {
		step { model_name: "m" model_version: 3 input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "B" } }
		step { model_name: "n" model_version: -1 input_map { key: "IN" value: "B" } output_map { key: "OUT" value: "C" } }
		step { model_name: "m" model_version: 1 input_map { key: "IN" value: "C" } output_map { key: "OUT" value: "D" } }
	}`))
	if err != nil {
		t.Fatal(err)
	}
	got := (&repository.Description{Config: config}).Composing()
	want := map[repository.Identity][]int64{{Name: "m"}: {1, 3}, {Name: "n"}: {infer.LatestVersion}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (&repository.Description{Config: &kserve.ModelConfig{}}).Composing(); len(got) != 0 {
		t.Errorf("a model that is no ensemble is composed of %v", got)
	}
}
