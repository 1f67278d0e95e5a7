package diagnosis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

// TestDoubtsForValidConfigs checks one config for each rule, and configs that give no reason
// for doubt.
func TestDoubtsForValidConfigs(t *testing.T) {
	const good = `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } output { name: "B" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "l.txt" } `
	for text, want := range map[string][]string{
		good: nil,
		good + `input { name: "A" } output { name: "B" }`: {
			"there are several tensors 'A' among the inputs: names must be unique: rename one, or remove it",
			"there are several tensors 'B' among the outputs: names must be unique: rename one, or remove it",
		},
		good + `instance_group { count: -1 }`: {"the group has the count -1: the server starts 1 instance: count is the number of instances, 1 or more"},
		good + `dynamic_batching { }`: {
			"dynamic_batching has no effect without max_batch_size: max_batch_size: 8 allows batches of 8; tensors of requests and of the model then begin with the batch dimension",
		},
		good + `dynamic_batching { } max_batch_size: 8`:                                                                       nil,
		good + `dynamic_batching { priority_levels: 2 }`:                                                                      nil,
		good + `model_warmup { name: "w" inputs { key: "A" } }`:                                                               {"sample 'w' of model_warmup has no batch_size and is not sent: set batch_size: 1, also for models without batching"},
		good + `model_warmup { name: "w" batch_size: 1 inputs { key: "C" } }`:                                                 {"sample 'w' of model_warmup has 'C', which is not an input of the model: the inputs are A"},
		good + `model_warmup { name: "w" batch_size: 1 inputs { key: "S" } } sequence_batching { state { input_name: "S" } }`: nil,
	} {
		c, err := config.ParseText("config.pbtxt", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range diagnosis.Doubts(c) {
			got = append(got, d.String())
			if d.Rule == "" || d.Field == "" {
				t.Errorf("%s: got %+v, want a rule and a field", text, d)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
	c, err := config.ParseText("config.pbtxt", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	for _, labels := range []map[string][]string{nil, {"B": {"x", "y"}}, {"other": {"x"}}} {
		if got := diagnosis.LabelDoubts(c, labels); got != nil {
			t.Errorf("labels %v: got %v, want nothing", labels, got)
		}
	}
	if got := diagnosis.LabelDoubts(c, map[string][]string{"B": {"x"}}); len(got) != 1 || got[0].Text != "l.txt has 1 lines, and output 'B' has 2 elements" {
		t.Errorf("too few labels: got %v", got)
	}
}

// TestDoubtsOfLargeConfigsAreShort checks that the doubts about a configuration with thousands of
// inputs, and thousands of unknown names in a warm-up, have little text.
func TestDoubtsOfLargeConfigsAreShort(t *testing.T) {
	const many = 3000
	long := strings.Repeat("n", 100<<10)
	sample := &kserve.ModelWarmup{Name: long, BatchSize: 1, Inputs: make(map[string]*kserve.ModelWarmup_Input)}
	c := &kserve.ModelConfig{ModelWarmup: []*kserve.ModelWarmup{sample}}
	labels := make(map[string][]string)
	for i := range many {
		c.Input = append(c.Input, &kserve.ModelInput{Name: fmt.Sprint("input", i)})
		sample.Inputs[fmt.Sprint("other", i)] = &kserve.ModelWarmup_Input{}
		c.Output = append(c.Output, &kserve.ModelOutput{Name: fmt.Sprint("output", i), LabelFilename: long, Dims: []int64{1}})
		labels[fmt.Sprint("output", i)] = make([]string, 2)
	}
	for about, list := range map[string][]diagnosis.Doubt{"the config": diagnosis.Doubts(c), "labels": diagnosis.LabelDoubts(c, labels)} {
		total := 0
		for _, d := range list {
			total += len(d.Text)
		}
		if len(list) != 100 || total > 100*3*infer.MaxEcho || len(list[0].Remedy) > 2*infer.MaxEcho {
			t.Errorf("%s: got %d doubts with %d bytes", about, len(list), total)
		}
	}
	if got, want := diagnosis.FirstConfig([]byte(`Tensor("`+long+`", x) Tensor("B", x)`)), `output [ { name: "B"`; !strings.Contains(got, want) || len(got) > 1000 {
		t.Errorf("got a config with %d bytes, want %s in it", len(got), want)
	}
}
