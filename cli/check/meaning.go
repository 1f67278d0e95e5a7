package check

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/examination"
)

// meaning reports what a configuration says and its author cannot mean. Server and Triton pass over it. Source is the
// text, nil without a file; completes says that the model may change what is in it.
func (c *check) meaning(e *examination.Model, source []byte, completes bool) {
	written, err := config.ParseText(e.File, source)
	if err != nil || source == nil {
		return
	}
	warn := func(rule string, line int, text, remedy string) {
		c.report.add(finding{Severity: severityWarning, Rule: rule, Model: e.Identity.String(), File: e.File, Line: line, Text: text, Remedy: remedy})
	}
	for _, kind := range []string{"input", "output"} {
		named := make(map[string]int)
		for _, name := range tensorNames(written, kind) {
			if named[name]++; named[name] == 2 {
				warn("duplicate-name", definition(source, kind, name, 2), fmt.Sprintf("there are several tensors '%s' among the %ss", name, kind), "tensors are told apart by their names: rename one, or remove it")
			}
		}
	}
	for _, group := range written.GetInstanceGroup() {
		if group.GetCount() < 0 {
			warn("instance-count", firstLine(source, fmt.Sprintf(`\bcount\s*:\s*%d\b`, group.GetCount())), fmt.Sprintf("the group has the count %d: the server starts 1 instance", group.GetCount()), "count is the number of instances, 1 or more")
		}
	}
	if b := written.GetDynamicBatching(); b != nil && written.GetMaxBatchSize() == 0 && !completes && b.GetPriorityLevels() == 0 && b.GetDefaultQueuePolicy() == nil {
		warn("no-batches", firstLine(source, `\bdynamic_batching\b`), "dynamic_batching joins no requests, since there is no max_batch_size",
			"max_batch_size: 8 lets it join 8 of them; shapes of requests and of the model's arrays then have the batch in front")
	}
	c.warmupMeaning(written, source, completes, warn)
}

// warmupMeaning looks at the samples of model_warmup.
func (c *check) warmupMeaning(written *kserve.ModelConfig, source []byte, completes bool, warn func(rule string, line int, text, remedy string)) {
	known := slices.Concat(tensorNames(written, "input"), fedNames(written))
	for _, sample := range written.GetModelWarmup() {
		if sample.GetBatchSize() == 0 {
			warn("warm-up", firstLine(source, `"`+regexp.QuoteMeta(sample.GetName())+`"`, `\bmodel_warmup\b`), fmt.Sprintf("sample '%s' of model_warmup has no batch_size: it is not sent", sample.GetName()),
				"batch_size: 1 sends one, to models without batches as well")
		}
		for name := range sample.GetInputs() {
			if !completes && !slices.Contains(known, name) {
				warn("warm-up", firstLine(source, `\bkey\s*:\s*"`+regexp.QuoteMeta(name)+`"`), fmt.Sprintf("sample '%s' of model_warmup has '%s', which is no input of the model", sample.GetName(), name),
					"the inputs are "+strings.Join(known, ", "))
			}
		}
	}
}

func tensorNames(c *kserve.ModelConfig, kind string) (names []string) {
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

// fedNames are the tensors that models get beside the inputs of requests.
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

// listed begins an input or an output, or gives a name.
var listed = regexp.MustCompile(`\b(input|output)\s*:?\s*[\[{]|\b(?:batch_input|batch_output|control_input|model_warmup|state|ensemble_scheduling)\s*:?\s*[\[{]|\bname\s*:\s*["']([^"'\n]*)["']`)

// definition returns the line of the nth tensor of a name among the inputs or the outputs, from 1; 0 if it is not found.
func definition(source []byte, kind, name string, nth int) int {
	within := ""
	for i, line := range bytes.Split(source, []byte("\n")) {
		code, _, _ := bytes.Cut(line, []byte("#"))
		for _, m := range listed.FindAllSubmatch(code, -1) {
			switch {
			case m[2] == nil:
				within = string(m[1])
			case within == kind && string(m[2]) == name:
				if nth--; nth == 0 {
					return i + 1
				}
			}
		}
	}
	return 0
}

// firstLine returns the first line of a configuration that has a match of the patterns, of which earlier ones are looked
// for first, from 1; 0 if there is none. Comments do not count.
func firstLine(source []byte, patterns ...string) int {
	for _, text := range patterns {
		pattern := regexp.MustCompile(text)
		for i, line := range bytes.Split(source, []byte("\n")) {
			if code, _, _ := bytes.Cut(line, []byte("#")); pattern.Match(code) {
				return i + 1
			}
		}
	}
	return 0
}

// versionNames are the folders of versions in a model's directory, in the order of their numbers.
func versionNames(directory string) (names []string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && numbered(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		return int(min(max(x-y, -1), 1))
	})
	return names
}
