package repository_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
)

// TestRecordedRefusalsReadTheSame compares errors with Triton's for the same model. poll is
// Triton's log when it read the model, load is the error that the client got.
func TestRecordedRefusalsReadTheSame(t *testing.T) {
	text, err := os.ReadFile("testdata/refused.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Config, Poll, Load string }
	repository.MustUnmarshal(t, text, &cases)
	if len(cases) < 100 {
		t.Fatalf("testdata/refused.json: got %d cases, want all", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Config, func(t *testing.T) {
			poll, load := repository.Refusal(t, repository.Options{}, c.Config)
			if poll != c.Poll || load != c.Load {
				t.Errorf("%s:\n got poll %q, load %q\nwant poll %q, load %q", c.Config, poll, load, c.Poll, c.Load)
			}
		})
	}
}

// TestLaterRefusalsReadTheSame checks the error texts of later releases and of other parts of
// Triton.
func TestLaterRefusalsReadTheSame(t *testing.T) {
	const python = `backend: "python" `
	for _, c := range []struct{ name, config, poll, load string }{
		{"metric without family", python + `model_metrics { metric_control { metric_identifier { } } }`, "metric identifier must specify non-empty 'family'", ""},
		{"warm-up without end", python + `model_warmup [ { name: "a" batch_size: 2 }, { name: "b" batch_size: 1 count: 4000000000 }, { name: "c" count: 7 } ]`,
			"model_warmup of m has 4000000002 requests up to sample 'b' ('count' times 'batch_size'), want 1000000 at most", ""},
		{"metric without identifier", python + `model_metrics { metric_control { } }`, "metric control must specify 'metric_identifier'", ""},
		{"metric without options", python + `model_metrics { metric_control { metric_identifier { family: "f" } } }`, "metric control must specify 'histogram_options'", ""},
		{"metric without buckets", python + `model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { } } }`, "histogram options must specify non-empty 'buckets'", ""},
		{"agent", `model_repository_agents { agents [ { name: "a" parameters { key: "b" value: "c" } } ] }`, "unable to find 'libtritonrepoagent_a.so' for repo agent 'a', searched: /opt/tritonserver/repoagents", ""},
		{"no agent", python + `model_repository_agents { }`, "", ""},
		{"labels outside", python + `output { name: "O" data_type: TYPE_FP32 dims: 1 label_filename: "../l.txt" }`, "", "Unsupported: label file path '../l.txt' for output 'O' in model 'm' is outside model directory"},
		{"labels are a directory", python + `output { name: "O" data_type: TYPE_FP32 dims: 1 label_filename: "1" }`, "", "Internal: failed to open text file for read ROOT/m/1: Is a directory"},
		{"batch input of two sources", python + `batch_input { kind: BATCH_ITEM_SHAPE source_input: [ "a", "b" ] data_type: TYPE_INT32 }`, "", "Invalid argument: batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 2 for m"},
		{"batch input of a wrong type", python + `batch_input { source_input: "a" data_type: TYPE_INT64 }`, "", "Invalid argument: batch input data type must be TYPE_INT32 or TYPE_FP32 for m"},
		{"batch input of a wrong kind", python + `batch_input { kind: 9 data_type: TYPE_INT32 }`, "", "Invalid argument: unknown batch input kind '' for m"},
		{"batch output of a wrong kind", python + `batch_output { kind: 9 }`, "", "Invalid argument: unknown batch output kind '' for m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if poll, load := repository.Refusal(t, repository.Options{}, c.config); poll != c.poll || load != c.load {
				t.Errorf("got poll %q, load %q\nwant poll %q, load %q", poll, load, c.poll, c.load)
			}
		})
	}
}

// TestInstanceGroupsWithGPUs checks the placement of instances on a host with the GPUs 0 and 2.
func TestInstanceGroupsWithGPUs(t *testing.T) {
	const python = `backend: "python" `
	for _, c := range []struct{ name, config, want, load string }{
		{"none given", python, `[{"name":"m","kind":"KIND_GPU","count":1,"gpus":[0,2]}]`, ""},
		{"GPU", python + `instance_group { kind: KIND_GPU count: 2 }`, `[{"name":"m_0","kind":"KIND_GPU","count":2,"gpus":[0,2]}]`, ""},
		{"one GPU", python + `instance_group { gpus: 2 }`, `[{"name":"m_0","kind":"KIND_GPU","count":1,"gpus":[2]}]`, ""},
		{"CPU", python + `instance_group { kind: KIND_CPU }`, `[{"name":"m_0","kind":"KIND_CPU","count":1,"gpus":[]}]`, ""},
		{"unknown GPU", python + `instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }`, "", "Invalid argument: instance group m_0 of model m specifies invalid or unsupported gpu id 1. GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := repository.Options{GPUs: func() []int32 { return []int32{0, 2} }, MinCapability: 6}
			if c.load != "" {
				if poll, load := repository.Refusal(t, options, c.config); poll != "" || load != c.load {
					t.Errorf("got poll %q, load %q\nwant load %q", poll, load, c.load)
				}
				return
			}
			opened := repository.OpenRepository(t, options, map[string]string{"m/config.pbtxt": c.config, "m/1/model.py": ""})
			description, err := repository.ReadModel(opened, "m")
			if err != nil {
				t.Fatal(err)
			}
			_, shown, _, err := description.Finish(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				Groups []struct {
					Name  string  `json:"name"`
					Kind  string  `json:"kind"`
					Count int     `json:"count"`
					GPUs  []int32 `json:"gpus"`
				} `json:"instance_group"`
			}
			repository.MustUnmarshal(t, shown, &config)
			got, err := json.Marshal(config.Groups)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("instance groups: got %s, want %s", got, c.want)
			}
		})
	}
}
