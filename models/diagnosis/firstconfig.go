package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	inputName  = regexp.MustCompile(`get_input_tensor_by_name\([^,()]+,\s*["']([^"'\\]+)["']\)`)
	outputName = regexp.MustCompile(`\bTensor\(\s*["']([^"'\\]+)["']`)
)

// maxNames bounds the inputs and the outputs of a FirstConfig.
const maxNames = 8

// FirstConfig returns a one-line config.pbtxt to begin with, for a model without inputs and
// outputs. source is its model.py, from which literal tensor names are taken; types and shapes are
// examples.
func FirstConfig(source []byte) string {
	inputs, outputs := names(inputName, source, "INPUT0"), names(outputName, source, "OUTPUT0")
	return fmt.Sprintf(`backend: "python" input [ %s ] output [ %s ]`, tensors(inputs), tensors(outputs))
}

func names(pattern *regexp.Regexp, source []byte, otherwise string) (list []string) {
	for _, m := range pattern.FindAllSubmatch(source, -1) {
		if name := string(m[1]); !slices.Contains(list, name) && len(list) < maxNames {
			list = append(list, name)
		}
	}
	if list == nil {
		return []string{otherwise}
	}
	return list
}

func tensors(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf(`{ name: %q data_type: TYPE_FP32 dims: [ -1 ] }`, name)
	}
	return strings.Join(texts, ", ")
}
