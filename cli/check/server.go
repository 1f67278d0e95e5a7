package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/spelling"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/server/tracing"
)

// check is one run of the command.
type check struct {
	*options
	report report
	log    *capture
	server *nereid.Server
	found  []*models.Examined
	// scripts holds the findings, without texts, for scripts that cannot be parsed, by their absolute
	// paths.
	scripts map[string]finding
	// uncopied holds the errors of models that could not be copied from object stores, by the path
	// of the copy, which is empty.
	uncopied map[string]error
}

// everything creates a server without endpoints, runs the checks, and closes it.
func (c *check) everything(ctx context.Context, stdout, stderr io.Writer) (err error) {
	o := c.options.server
	o.HTTP.Allow, o.HTTPS.Allow, o.GRPC.Allow = false, false, false
	o.SageMaker.Allow, o.VertexAI.Allow, o.OpenAI.Allow = false, false, false
	o.Metrics.Series.GPU = false // other metrics settings stay, because models may have metrics; nothing listens
	o.Trace = tracing.Config{}
	o.ExitOnError, o.SoleParent = true, true
	o.Logger, o.Stdout, o.Stderr = zerolog.New(c.log).Level(zerolog.WarnLevel), stderr, stderr
	o.Repository.Control = nereid.ControlExplicit
	o.Repository.StartupModels = []string{"*"}
	if len(c.models) > 0 {
		o.Repository.StartupModels = c.models
	}
	restore, err := c.fetch(ctx, &o)
	if err != nil {
		return err
	}
	defer restore()
	if c.server, err = nereid.New(o); err != nil {
		return err
	}
	defer c.server.Close()
	if c.found, err = c.server.Registry().Examine(ctx, c.models); err != nil {
		return err
	}
	for _, e := range c.found {
		if len(e.Errors) == 1 && e.Errors[0].Error() == repository.NotFound(e.Identity.Name).Error() {
			return notThere(e.Identity.Name, o.Repository.Paths, c.options.server.Repository.Paths)
		}
		if err := c.uncopied[filepath.Clean(e.Directory)]; err != nil {
			e.Description, e.Errors = nil, []error{err}
		}
		c.examined(e)
	}
	c.syntax(ctx)
	if len(c.models) == 0 {
		c.folders(o.Repository.Paths)
		if len(c.found) == 0 {
			c.report.add(finding{Severity: severityWarning, Rule: "empty", File: o.Repository.Paths[0], Text: "there is no model", Remedy: "each directory in a repository is a model, such as greeter, with greeter/config.pbtxt and greeter/1/model.py"})
		}
	}
	if c.importing || c.writing {
		err := c.load(ctx, stdout)
		if ended := c.server.Shutdown(); err == nil {
			err = ended
		}
		if err != nil {
			return err
		}
	}
	c.told()
	return ctx.Err()
}

// notThere returns an error about a model that is in no repository, and suggests a similar one.
// given holds the repositories as written on the command line, some of them in object stores; read
// holds their directories.
func notThere(name string, read, given []string) error {
	var known []string
	for _, path := range read {
		entries, err := os.ReadDir(path)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			known = append(known, entry.Name())
		}
	}
	var paths []string
	for _, path := range given {
		if location, inStore, _ := objectstore.Parse(path); inStore {
			path = location.String()
		}
		paths = append(paths, path)
	}
	if near := spelling.Nearest(name, known); near != "" {
		return command.Usagef("--model is %q, but it is not in %s; did you mean %s?", name, strings.Join(paths, ", "), near)
	}
	return command.Usagef("--model is %q, but it is not in %s", name, strings.Join(paths, ", "))
}

// examined reports the findings about a model's files.
func (c *check) examined(e *models.Examined) {
	m := &modelReport{Name: e.Identity.String(), Directory: filepath.Clean(e.Directory), Versions: []int64{}}
	c.report.Models = append(c.report.Models, m)
	source := configSource(e)
	for _, err := range e.Errors {
		c.fault(e, source, severityError, "config", err)
	}
	if e.Description == nil {
		return
	}
	m.Backend = e.Description.Config.GetBackend()
	m.Versions = slices.Concat(m.Versions, e.Description.Versions)
	for _, text := range e.Description.Warnings {
		c.warn(e, source, text)
	}
	completes := c.completes(e)
	for _, number := range e.Description.Versions {
		v := e.Versions[number]
		for _, err := range v.Errors {
			c.fault(e, source, severityError, "config", err)
		}
		for _, text := range v.Warnings {
			c.warn(e, source, text)
		}
		switch {
		case v.Incomplete == nil:
		case !completes:
			c.fault(e, source, severityError, "config", v.Incomplete)
		case !c.importing: // otherwise the load reports the error
			f := c.faultOf(e, source, severityWarning, "incomplete", v.Incomplete)
			f.Remedy = "the model may complete it when it is loaded: check with --import"
			c.report.add(f)
		}
		c.versionFiles(e, number, &v)
	}
	c.modelFiles(e, completes)
	c.meaning(e, source, completes)
	c.triton(e, source)
}

// fault reports an error from the server about a model.
func (c *check) fault(e *models.Examined, source []byte, severity, rule string, err error) {
	c.report.add(c.faultOf(e, source, severity, rule, err))
}

func (c *check) faultOf(e *models.Examined, source []byte, severity, rule string, err error) finding {
	return c.findingOf(e, source, severity, rule, diagnosis.Of(e.Identity.String(), e.Directory, e.File, err))
}

// findingOf converts a fault to a finding, with the line that it refers to.
func (c *check) findingOf(e *models.Examined, source []byte, severity, rule string, fault diagnosis.Fault) finding {
	f := finding{Severity: severity, Rule: rule, Model: fault.Model, Text: fault.Reason, Remedy: fault.Remedy}
	f.File, f.Line, f.Column = splitSource(fault.Source)
	if f.Line == 0 && f.File == e.File {
		f.File, f.Line = c.lineOf(e, source, fault.Reason)
	}
	if _, names, found := strings.Cut(fault.Reason, "not available or ambiguous: "); found && f.Remedy == "" {
		f.Remedy = c.meant(strings.Split(names, ", ")[0])
	}
	if remedy := unversioned(e, fault.Reason); remedy != "" {
		f.Remedy = remedy
	}
	return f
}

// meant suggests a model for an unknown name.
func (c *check) meant(name string) string {
	var known []string
	for _, e := range c.found {
		if e.Description != nil && !e.Description.IsEnsemble() {
			known = append(known, e.Identity.Name)
		}
	}
	if near := spelling.Nearest(name, known); near != "" {
		return "did you mean '" + near + "'?"
	}
	return "the repository needs a directory " + name
}

// spokenOf maps texts to the fields that they refer to without naming them.
var spokenOf = []struct{ text, field string }{
	{"canonical path for", "EXECUTION_ENV_PATH"},
	{"Python environment", "EXECUTION_ENV_PATH"},
	{"failed to open text file for read", "label_filename"},
	{"label file path", "label_filename"},
	{"failed to run warmup sample", "model_warmup"},
	{"preferred size must be", "preferred_batch_size"},
	{"default priority level", "default_priority_level"},
	{"must specify 'step' for ensemble", "ensemble_scheduling"},
	{"must specify 'model_name' in step", "input_map"},
	{"must specify 'input_map' in step", "model_name"},
	{"must specify 'output_map' in step", "model_name"},
	{"ensemble scheduling must be set", "platform"},
	{"instance group", "instance_group"},
	{"model input must specify 'name'", "input"},
	{"model output must specify 'name'", "output"},
	{"at least one version must be available", "version_policy"},
	{"is specified for model", "version_policy"},
}

// lineOf returns the configuration and the line in it that a text refers to, or the model's
// directory if there is no configuration.
func (c *check) lineOf(e *models.Examined, source []byte, text string) (file string, line int) {
	if source == nil {
		return e.Directory, 0
	}
	if _, circle, found := strings.Cut(text, " -> ... -> "); found {
		last, _, _ := strings.Cut(circle, " -> ")
		return e.File, firstLine(source, `\bmodel_name\s*:\s*"`+regexp.QuoteMeta(last)+`"`, `\bmodel_name\b`)
	}
	for _, s := range spokenOf {
		if strings.Contains(text, s.text) {
			if at := firstLine(source, `\b`+s.field+`\b`); at > 0 {
				return e.File, at
			}
		}
	}
	return e.File, diagnosis.Line(source, e.Identity.Name, text)
}

// warn reports a warning that the server would log when it loads a model.
func (c *check) warn(e *models.Examined, source []byte, text string) {
	f := finding{Severity: severityWarning, Rule: "log", Model: e.Identity.String(), Text: text}
	if strings.HasPrefix(text, "ignore version directory") {
		f.Rule, f.File = "version-folder", e.Directory
		f.Remedy = "version directories are named 1, 2, 3, …"
	} else {
		f.File, f.Line = c.lineOf(e, source, text)
	}
	c.report.add(f)
}

// load loads the models, and sends them requests.
func (c *check) load(ctx context.Context, stdout io.Writer) error {
	if c.writing && configSource(c.only()) != nil {
		return fmt.Errorf("%s exists: --write-config never changes a file", c.only().File)
	}
	err := c.server.Load(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var start *models.StartError
	switch {
	case errors.As(err, &start):
		for _, fault := range start.Faults {
			c.notLoaded(fault)
		}
	case err != nil:
		c.report.add(finding{Severity: severityError, Rule: "import", Text: infer.AsError(err).Detailed().Status()})
	}
	for _, e := range c.found {
		loaded := len(c.server.Registry().ReadyVersions(e.Identity.Name)) > 0
		c.modelReport(e).Loaded = &loaded
	}
	if c.writing {
		return c.writeConfig(ctx, stdout)
	}
	if c.trying {
		return c.try(ctx)
	}
	return nil
}

// notLoaded reports why a model could not be loaded, unless the check of its files has.
func (c *check) notLoaded(fault diagnosis.Fault) {
	if c.report.hasError(fault.Model) {
		return
	}
	at := slices.IndexFunc(c.found, func(e *models.Examined) bool { return e.Identity.String() == fault.Model })
	if at < 0 && c.report.hasText(fault.Model) {
		return // the finding of an ensemble has the reason
	}
	if at < 0 {
		file, line, column := splitSource(fault.Source)
		c.report.add(finding{Severity: severityError, Rule: "import", Model: fault.Model, File: file, Line: line, Column: column, Text: fault.Reason, Remedy: fault.Remedy})
		return
	}
	e := c.found[at]
	f := c.findingOf(e, configSource(e), severityError, "import", fault)
	f.File = c.shown(e, f.File)
	c.report.add(f)
}

func (c *check) modelReport(e *models.Examined) *modelReport {
	at := slices.IndexFunc(c.report.Models, func(m *modelReport) bool { return m.Name == e.Identity.String() })
	return c.report.Models[at]
}

// shown returns a file below a model's directory as the user would write it.
func (c *check) shown(e *models.Examined, file string) string {
	if e.Description == nil {
		return file
	}
	if below, err := filepath.Rel(e.Description.Directory, file); err == nil && filepath.IsAbs(file) && filepath.IsLocal(below) {
		return filepath.Join(e.Directory, below)
	}
	return file
}

// capture keeps warnings and errors of the log.
type capture struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	Level, Model, Message, Error string
}

// mostLines is the maximum number of kept log lines.
const mostLines = 10_000

// Write receives one line from zerolog.
func (c *capture) Write(line []byte) (int, error) {
	var l logLine
	if json.Unmarshal(line, &l) == nil {
		if l.Error != "" {
			l.Message += ": " + l.Error
		}
		c.mu.Lock()
		if len(c.lines) < mostLines {
			c.lines = append(c.lines, l)
		}
		c.mu.Unlock()
	}
	return len(line), nil
}

// forget returns the lines and removes them.
func (c *capture) forget() []logLine {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}

// told reports the warnings of the log, with the models that they name. Errors of the log are those
// of loads, which have been reported with their positions.
func (c *check) told() {
	for _, l := range c.log.forget() {
		if l.Level != "warn" || c.report.hasText(l.Message) || c.report.isDoubt(l.Message) || strings.HasPrefix(l.Message, "model '") && strings.Contains(l.Message, "has no inputs and no outputs") {
			continue
		}
		var named *models.Examined
		for _, e := range c.found {
			if e.Identity.Name == l.Model || l.Model == "" && strings.Contains(l.Message, "'"+e.Identity.Name+"'") {
				named = e
			}
		}
		if named == nil {
			c.report.add(finding{Severity: severityWarning, Rule: "log", Text: l.Message})
			continue
		}
		c.warn(named, configSource(named), l.Message)
	}
}
