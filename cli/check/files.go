package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/version"
)

// maxSource is the maximum number of bytes read from a file.
const maxSource = 1 << 20

const (
	configName = "config.pbtxt"
	scriptName = "model.py"
)

// readStart returns the beginning of a file, or nil if it is not a regular file: a pipe would
// block.
func readStart(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSource))
	if err != nil {
		return nil
	}
	return data
}

// configSource returns the text of a model's configuration, or nil.
func configSource(e *models.Examined) []byte {
	if e.File == "" || !isFile(e.File) {
		return nil
	}
	return readStart(e.File)
}

// scriptOf returns the path of a version's model.py, or "" if it has another backend.
func scriptOf(e *models.Examined, number int64) string {
	c := e.Description.Config
	if c.GetBackend() != config.BackendPython {
		return ""
	}
	file := c.GetDefaultModelFilename()
	if file == "" {
		file = scriptName
	}
	return filepath.Join(e.Directory, strconv.FormatInt(number, 10), file)
}

var (
	completePattern = regexp.MustCompile(`(?m)^\s+def\s+auto_complete_config\b`)
	classPattern    = regexp.MustCompile(`(?m)^\s*class\s+TritonPythonModel\b\s*(\([^)]*\))?|^\s*TritonPythonModel\s*=|^\s*from\b.*\bimport\b.*(?:\bTritonPythonModel\b|\*)`)
	executePattern  = regexp.MustCompile(`(?m)^\s+(?:async\s+)?def\s+execute\b`)
	elsewhere       = regexp.MustCompile(`(?m)^\s*(?:from|import)\b.*\bTritonPythonModel\b|^\s*from\b.*\bimport\s+\*|^\s*class\s+TritonPythonModel\s*\(\s*\w|^\s*TritonPythonModel\s*=`)
)

// completes reports whether the model may complete its configuration.
func (c *check) completes(e *models.Examined) bool {
	if !e.Description.Completes() || e.Description.IsEnsemble() {
		return false
	}
	if e.Description.Config.GetBackend() != config.BackendPython {
		return true // a backend in Go, or a Python-based one, knows its models
	}
	return slices.ContainsFunc(e.Description.Versions, func(number int64) bool {
		source := readStart(scriptOf(e, number))
		return completePattern.Match(source) || elsewhere.Match(source)
	})
}

// versionFiles checks the files of one version.
func (c *check) versionFiles(e *models.Examined, number int64, v *version.Examination) {
	add := func(rule, file, text, remedy string) {
		c.report.add(finding{Severity: severityError, Rule: rule, Model: e.Identity.String(), File: file, Text: text, Remedy: remedy})
	}
	if path := scriptOf(e, number); path != "" {
		folder := filepath.Dir(path)
		source := readStart(path)
		if absolute, err := filepath.Abs(path); err == nil && source != nil && e.Description.Config.GetParameters()["EXECUTION_ENV_PATH"] == nil {
			c.scripts[absolute] = finding{Severity: severityError, Rule: "syntax", Model: e.Identity.String(), File: path}
		}
		switch {
		case isSpecial(path):
			add("model-file", path, "it is not a regular file", "replace it with the file itself, or with a link to it")
		case !isFile(path):
			add("model-file", folder, "there is no "+filepath.Base(path)+" in the directory of version "+strconv.FormatInt(number, 10), c.strayScript(e, folder, filepath.Base(path)))
		case !classPattern.Match(source):
			add("model-class", path, "there is no class TritonPythonModel", "the server creates an instance of that class: define class TritonPythonModel: with def execute(self, requests)")
		case !executePattern.Match(source) && !elsewhere.Match(source):
			add("model-class", path, "the class TritonPythonModel has no method execute", "add def execute(self, requests), which returns a list with one response per request")
		}
	}
	for _, d := range diagnosis.LabelDoubts(v.Config, v.Labels) {
		c.doubt(e, configSource(e), d)
	}
}

// syntax reports scripts that Python cannot parse, instead of other faults of their text. Models
// with an execution environment may need another Python.
func (c *check) syntax(ctx context.Context) {
	if len(c.scripts) == 0 {
		return
	}
	failures, err := c.server.CheckSyntax(ctx, slices.Sorted(maps.Keys(c.scripts)))
	if err != nil {
		c.report.add(finding{
			Severity: severityWarning, Rule: "syntax", Text: "the syntax of the models' code was not checked: " + err.Error(),
			Remedy: "name an interpreter with --backend-config=python,python-executable=PATH",
		})
	}
	for _, failure := range failures {
		f := c.scripts[failure.File]
		f.Line, f.Column, f.Text = failure.Line, failure.Column, failure.Text
		c.report.Findings = slices.DeleteFunc(c.report.Findings, func(other *finding) bool { return other.Rule == "model-class" && other.File == filepath.Clean(f.File) })
		c.report.add(f)
	}
}

// unversioned returns the remedy for a model without a version directory, or "" if the text reports
// another error or no remedy is known.
func unversioned(e *models.Examined, text string) string {
	versionless := strings.Contains(text, "at least one version must be available")
	if !versionless && !strings.Contains(text, "Could not determine backend for model") || e.Directory == "" {
		return ""
	}
	first := filepath.Join(e.Directory, "1")
	stray := filepath.Join(e.Directory, scriptName)
	switch {
	case versionless && len(versionNames(e.Directory)) > 0:
		return fmt.Sprintf("version_policy selects none of the existing versions: %s", strings.Join(versionNames(e.Directory), ", "))
	case versionless && e.Description != nil && e.Description.IsEnsemble():
		return "an ensemble needs an empty version directory as well: create " + first
	case isFile(stray) && len(versionNames(e.Directory)) == 0:
		return fmt.Sprintf("move %s to %s", stray, filepath.Join(first, scriptName))
	case versionless && e.Description != nil:
		return fmt.Sprintf("a model needs a directory for each version, such as %s with the %s; if this is not a model, move it out of the repository", first, scriptName)
	}
	return ""
}

// strayScript suggests where a missing file may be.
func (c *check) strayScript(e *models.Examined, folder, want string) string {
	if isFile(filepath.Join(e.Directory, want)) {
		return fmt.Sprintf("there is %s: move it into the directory", filepath.Join(e.Directory, want))
	}
	if near := similar(folder, want); near != "" {
		return fmt.Sprintf("there is %s: is that it?", filepath.Join(folder, near))
	}
	if named := filepath.Join(folder, scriptName); want != scriptName && isFile(named) {
		return fmt.Sprintf("there is %s: rename it, or remove default_model_filename", named)
	}
	return "each version directory needs one, with a class TritonPythonModel"
}

// otherNames are wrong names that users often give to a file.
var otherNames = map[string][]string{
	configName: {"config.prototxt", "config.textproto", "model_config.pbtxt", "model.pbtxt"},
	scriptName: {"__init__.py", "main.py"},
}

// similar returns a file of a directory with a name similar to the wanted one, or "".
func similar(directory, want string) string {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		name := e.Name()
		lower := strings.ToLower(name)
		if e.IsDir() || name == want {
			continue
		}
		if strings.TrimSuffix(lower, ".txt") == want || slices.Contains(otherNames[want], lower) || spelling.Nearest(lower, []string{want}) != "" {
			return name
		}
	}
	return ""
}

// modelFiles checks the files beside the version directories.
func (c *check) modelFiles(e *models.Examined, completes bool) {
	if near := similar(e.Directory, configName); near != "" && filepath.Base(e.File) == configName {
		f := finding{Severity: severityWarning, Rule: "similar-name", Model: e.Identity.String(), File: filepath.Join(e.Directory, near), Text: "the file is ignored", Remedy: "the configuration file is " + configName}
		if !isFile(e.File) {
			f.Remedy += ", which does not exist: rename the file"
		}
		c.report.add(f)
	}
	if len(e.Description.Versions) > 0 && e.Description.Config.GetBackend() == config.BackendPython && isFile(filepath.Join(e.Directory, scriptName)) &&
		!slices.ContainsFunc(e.Description.Versions, func(n int64) bool { return !isFile(scriptOf(e, n)) }) {
		c.report.add(finding{
			Severity: severityWarning, Rule: "similar-name", Model: e.Identity.String(), File: filepath.Join(e.Directory, scriptName), Text: "the file is ignored",
			Remedy: fmt.Sprintf("the model's code is %s", scriptOf(e, slices.Max(e.Description.Versions))),
		})
	}
	for _, other := range c.found {
		if other.Identity != e.Identity && strings.EqualFold(other.Identity.Name, e.Identity.Name) && other.Identity.Name < e.Identity.Name {
			c.report.add(finding{
				Severity: severityWarning, Rule: "similar-name", Model: e.Identity.String(), File: e.Directory, Text: fmt.Sprintf("model '%s' has the same name in different case", other.Identity.Name),
				Remedy: "case-insensitive file systems can hold only one of them",
			})
		}
	}
	if known := e.Config(); known != nil && len(known.GetInput())+len(known.GetOutput()) == 0 && !completes && !e.Description.IsEnsemble() {
		c.report.add(finding{
			Severity: severityWarning, Rule: "no-tensors", Model: e.Identity.String(), File: e.Directory,
			Text:   "the model has no inputs and no outputs, neither from " + configName + " nor from an auto_complete_config: each request with an input is rejected",
			Remedy: "nereid check " + e.Directory + " --write-config writes a first configuration",
		})
	}
}
