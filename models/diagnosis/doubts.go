package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Doubt is a valid but ineffective part of a configuration, probably a mistake: the server and
// Triton ignore it.
type Doubt struct {
	Rule         string // as nereid check names it
	Field, Name  string // the subject
	Text, Remedy string
}

// String is a line for the log.
func (d Doubt) String() string { return d.Text + ": " + d.Remedy }

// The rules of doubts.
const (
	RuleDuplicateName = "duplicate-name" // Field is input or output
	RuleInstanceCount = "instance-count" // Name is the count
	RuleNoBatches     = "no-batches"
	RuleWarmup        = "warm-up" // Field is batch_size, and Name the sample, or inputs, and Name the input
	RuleLabels        = "labels"  // Name is the file
)

// MayComplete reports whether the model's auto-complete may settle the doubt.
func (d Doubt) MayComplete() bool {
	return d.Rule == RuleNoBatches || d.Rule == RuleWarmup && d.Field == "inputs"
}

// A configuration may come from a client, and the texts repeat its names.
const (
	maxDoubts = 100           // of one configuration
	maxShown  = infer.MaxEcho // of a name, or a list of names, in bytes
)

// Doubts returns the doubts about a configuration, as written or complete: the first maxDoubts.
//
// bound: the config, and maxDoubts texts of maxShown names
func Doubts(c *kserve.ModelConfig) (list []Doubt) {
	add := func(rule, field, name, format, remedy string, arguments ...any) {
		if len(list) < maxDoubts {
			list = append(list, Doubt{rule, field, name, fmt.Sprintf(format, arguments...), remedy})
		}
	}
	for _, kind := range []string{"input", "output"} {
		named := make(map[string]int)
		for _, name := range tensorNames(c, kind) {
			if named[name]++; named[name] == 2 {
				add(RuleDuplicateName, kind, name, "there are several tensors '%s' among the %ss", "names must be unique: rename one, or remove it", infer.Cut(name, maxShown), kind)
			}
		}
	}
	for _, group := range c.GetInstanceGroup() {
		if count := group.GetCount(); count < 0 {
			add(RuleInstanceCount, "count", fmt.Sprint(count), "the group has the count %d: the server starts 1 instance", "count is the number of instances, 1 or more", count)
		}
	}
	if b := c.GetDynamicBatching(); b != nil && c.GetMaxBatchSize() == 0 && b.GetPriorityLevels() == 0 && b.GetDefaultQueuePolicy() == nil {
		add(RuleNoBatches, "dynamic_batching", "", "dynamic_batching has no effect without max_batch_size",
			"max_batch_size: 8 allows batches of 8; tensors of requests and of the model then begin with the batch dimension")
	}
	known := slices.Concat(tensorNames(c, "input"), fedNames(c))
	inputs := "the inputs are " + infer.Cut(strings.Join(known, ", "), maxShown)
	slices.Sort(known)
	for _, sample := range c.GetModelWarmup() {
		if sample.GetBatchSize() == 0 {
			add(RuleWarmup, "batch_size", sample.GetName(), "sample '%s' of model_warmup has no batch_size and is not sent",
				"set batch_size: 1, also for models without batching", infer.Cut(sample.GetName(), maxShown))
		}
		for name := range sample.GetInputs() {
			if _, is := slices.BinarySearch(known, name); !is {
				add(RuleWarmup, "inputs", name, "sample '%s' of model_warmup has '%s', which is not an input of the model", inputs,
					infer.Cut(sample.GetName(), maxShown), infer.Cut(name, maxShown))
			}
		}
	}
	return list
}

// LabelDoubts returns the doubts about the labels of outputs, by the names of the outputs: the
// first maxDoubts.
func LabelDoubts(c *kserve.ModelConfig, labels map[string][]string) (list []Doubt) {
	for _, out := range c.GetOutput() {
		given := labels[out.GetName()]
		if len(list) == maxDoubts {
			break
		}
		file, name := infer.Cut(out.GetLabelFilename(), maxShown), infer.Cut(out.GetName(), maxShown)
		if dims := out.GetDims(); given != nil && len(dims) == 1 && dims[0] > 0 && int64(len(given)) != dims[0] {
			list = append(list, Doubt{ // bound: maxDoubts
				RuleLabels, "label_filename", out.GetLabelFilename(),
				fmt.Sprintf("%s has %d lines, and output '%s' has %d elements", file, len(given), name, dims[0]),
				"each line is the label of one element, in order",
			})
		}
	}
	return list
}

func tensorNames(c *kserve.ModelConfig, kind string) (names []string) { // bound: the config
	if kind == "output" {
		for _, out := range c.GetOutput() {
			names = append(names, out.GetName())
		}
		return names
	}
	for _, in := range c.GetInput() {
		names = append(names, in.GetName())
	}
	return names
}

// fedNames lists the tensors that models receive beside the inputs of requests.
//
// bound: the config
func fedNames(c *kserve.ModelConfig) (names []string) {
	for _, control := range c.GetSequenceBatching().GetControlInput() {
		names = append(names, control.GetName())
	}
	for _, state := range c.GetSequenceBatching().GetState() {
		names = append(names, state.GetInputName())
	}
	for _, in := range c.GetBatchInput() {
		names = append(names, in.GetTargetName()...)
	}
	return names
}
