package repository

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// readLabels reads the label files of a model's outputs: one label per line; an empty line is a
// class without a label. It charges c, because a config may name the same large file many times.
func (d *Description) readLabels(c *budget.Charge, config *kserve.ModelConfig) (map[string][]string, error) {
	var labels map[string][]string // bound: the config
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
		list, err := readLabelFile(c, f, strings.TrimLeft(name, "/"))
		if err != nil {
			return nil, err
		}
		if _, repeated := labels[out.GetName()]; !repeated {
			labels[out.GetName()] = list
		}
	}
	return labels, nil
}

// labelBytes is the memory of a label without its text.
const labelBytes = 16

// readLabelFile reads one file and charges c for its labels.
func readLabelFile(c *budget.Charge, f *Folder, name string) ([]string, error) {
	data, err := f.ReadCharged(c, name, maxFileBytes+1)
	if err == nil && len(data) > maxFileBytes {
		err = f.unreadable(name, fmt.Errorf("file has more than %d bytes", maxFileBytes))
	}
	if err != nil || len(data) == 0 {
		return nil, err
	}
	defer c.Give(budget.Bodies, int64(cap(data)))
	text, err := budget.Text(c, budget.Bodies, data)
	if err != nil {
		return nil, err
	}
	// Line feeds alone separate labels; the last line needs none.
	text = strings.TrimSuffix(text, "\n")
	if err := c.Take(budget.Bodies, labelBytes*int64(1+strings.Count(text, "\n"))); err != nil {
		return nil, err
	}
	return strings.Split(text, "\n"), nil // bound: charged
}
