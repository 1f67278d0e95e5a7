package backends

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/version"
)

// find returns the program at a path, and the name of its backend.
func find(path string) (program, backend string, err error) {
	if program, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", "", err
	}
	if info.IsDir() {
		programs := slices.DeleteFunc(version.Plugins(filepath.Dir(program), nil, "*"), func(file string) bool {
			info, err := os.Stat(file)
			return filepath.Dir(file) != program || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0
		})
		if len(programs) != 1 {
			return "", "", fmt.Errorf("%s contains %d programs %sNAME, want one: build it first, or name the file", path, len(programs), version.PluginPrefix)
		}
		program = programs[0]
	}
	backend, ok := strings.CutPrefix(filepath.Base(program), version.PluginPrefix)
	if !ok || backend == "" {
		return "", "", fmt.Errorf("%s: the name of a backend's program must be %sNAME", path, version.PluginPrefix)
	}
	return program, backend, nil
}

// modelsOf lists the models of a backend in the first of the folders that has any.
func modelsOf(backend string, folders ...string) (models []string) {
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*", "config.pbtxt"))
		if err != nil {
			continue // the directory's name contains pattern characters
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			if c, err := config.ParseText(file, text); err == nil && c.Backend == backend {
				models = append(models, filepath.Dir(file))
			}
		}
		if len(models) > 0 {
			return models
		}
	}
	return nil
}
