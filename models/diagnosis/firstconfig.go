package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

var (
	inputName  = regexp.MustCompile(`get_input_tensor_by_name\([^,()]+,\s*["']([^"'\\]+)["']\)`)
	outputName = regexp.MustCompile(`\bTensor\(\s*["']([^"'\\]+)["']`)
)

// Limits of the inputs and the outputs of a FirstConfig.
const (
	maxNames     = 8
	maxNameBytes = 1 << 10 // longer names are ignored
)

// FirstConfig returns a one-line config.pbtxt to begin with, for a model without inputs and
// outputs. source is its model.py, from which literal tensor names are taken; types and shapes are
// examples.
func FirstConfig(source []byte) string {
	inputs, outputs := names(inputName, source, "INPUT0"), names(outputName, source, "OUTPUT0")
	return fmt.Sprintf(`backend: "python" input [ %s ] output [ %s ]`, tensors(inputs), tensors(outputs))
}

// bound: maxNames
func names(pattern *regexp.Regexp, source []byte, otherwise string) (list []string) {
	for len(list) < maxNames {
		m := pattern.FindSubmatchIndex(source)
		if m == nil {
			break
		}
		found := source[m[2]:m[3]]
		source = source[m[1]:]
		if name := infer.Cut(found, maxNameBytes); len(name) == len(found) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if list == nil {
		return []string{otherwise}
	}
	return list
}

// bound: maxNames
func tensors(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf(`{ name: %q data_type: TYPE_FP32 dims: [ -1 ] }`, name)
	}
	return strings.Join(texts, ", ")
}
