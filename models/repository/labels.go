package repository

import (
	"path/filepath"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// readLabels reads the label files of a model's outputs: one label per line; an empty line is a
// class without a label.
func (d *Description) readLabels(config *kserve.ModelConfig) (map[string][]string, error) {
	var labels map[string][]string
	var f *Folder
	for _, out := range config.GetOutput() {
		name := out.GetLabelFilename()
		if name == "" {
			continue
		}
		if f == nil {
			var err error
			if f, err = d.Open(); err != nil {
				return nil, err
			}
			defer f.Close()
			labels = make(map[string][]string)
		}
		// A leading slash does not lead out: the name follows the directory's.
		if !filepath.IsLocal(strings.TrimLeft(name, "/")) {
			return nil, infer.Errorf(infer.Unsupported, "label file path '%s' for output '%s' in model '%s' is outside model directory", name, out.GetName(), d.Name)
		}
		text, err := f.Read(strings.TrimLeft(name, "/"))
		if err != nil {
			return nil, err
		}
		if _, repeated := labels[out.GetName()]; !repeated {
			labels[out.GetName()] = splitLabels(string(text))
		}
	}
	return labels, nil
}

// splitLabels splits at line feeds alone; the last line needs none.
func splitLabels(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
