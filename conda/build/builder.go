package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/rs/zerolog"
)

// Options configure a Builder.
type Options struct {
	Cache *cache.Cache
	Run   conda.Run
	// Python is the interpreter for environments of uv if the model names no version: a path or a
	// version. Empty: uv chooses.
	Python string
	// Variables are the server's, in the form of os.Environ. PATH locates uv and pixi.
	Variables []string
	Log       zerolog.Logger
}

// Builder makes environments from requirements. It may be used by several goroutines.
type Builder struct{ Options }

// New makes a Builder.
func New(options Options) *Builder { return &Builder{options} }

// Environment returns the environment for a model directory's requirements, newly made or from the
// cache; the caller releases it. It returns nil if the model directory has no requirements. ctx
// bounds the build.
func (b *Builder) Environment(ctx context.Context, modelDirectory string) (*cache.Environment, error) {
	r, err := find(modelDirectory)
	if r == nil || err != nil {
		return nil, err
	}
	s, err := b.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.Cache.Build(ctx, s.key(), s.make)
}

// site is one build: the requirements and the programs for it.
type site struct {
	*requirements
	builder     *Builder
	program     string // the tool's
	toolVersion string
	python      string // the interpreter's path or its name for uv; "" for pixi
	pythonIs    string // its version
	variables   []string
}

// prepare finds the tool and the interpreter, and queries their versions.
func (b *Builder) prepare(ctx context.Context, r *requirements) (*site, error) {
	s := &site{requirements: r, builder: b, variables: b.variables()}
	name := r.tool.program()
	if s.program = b.look(name); s.program == "" {
		return nil, fmt.Errorf("build an environment from the model's %s: there is no program %s on PATH; install it, or name an environment with the parameter EXECUTION_ENV_PATH", r.tool, name)
	}
	var err error
	if s.toolVersion, err = s.ask(ctx, s.program, "--version"); err != nil || r.tool == pixi {
		return s, err
	}
	switch {
	case r.version != "":
		s.python = r.version
	case r.tool == uvPip:
		s.python = b.Python
	}
	find := []string{s.program, "python", "find", "--system"}
	if s.python != "" {
		find = append(find, s.python)
	}
	s.pythonIs = s.python
	// uv may fetch a missing interpreter later, so that is no error yet.
	if found, err := s.ask(ctx, find...); err == nil && filepath.IsAbs(found) {
		s.python = found
		if s.pythonIs, err = s.ask(ctx, found, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"); err != nil {
			return nil, err
		}
	}
	return s, ctx.Err()
}

// key is the environment's key in the cache.
func (s *site) key() string {
	words := []string{string(s.tool), "sha256:" + s.digest}
	if s.pythonIs != "" {
		words = append(words, "python "+s.pythonIs)
	}
	return strings.Join(append(words, s.toolVersion, runtime.GOARCH), ", ") // bound: maxVersion, and what Run returns
}

// make makes the environment in its final, empty directory.
func (s *site) make(ctx context.Context, directory string) error {
	log, began := s.builder.Log, time.Now()
	log.Info().Str("tool", s.toolVersion).Msgf("Making Python execution env from %s", filepath.Join(s.directory, string(s.tool)))
	if s.tool == pixi { // pixi writes beside its input files
		if err := s.copyFiles(directory); err != nil {
			return err
		}
	}
	for _, step := range s.steps(directory) {
		output, err := s.run(ctx, step)
		for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
			log.Debug().Msgf("%s: %s", s.tool.program(), line)
		}
		if err != nil {
			return err
		}
	}
	if err := s.verify(ctx, directory); err != nil {
		return err
	}
	log.Info().Dur("wait", time.Since(began)).Msgf("Made Python execution env from %s", filepath.Join(s.directory, string(s.tool)))
	return nil
}

// step is a program to run, with additional variables.
type step struct{ argv, variables []string }

// steps lists the programs that make the environment, in order.
func (s *site) steps(directory string) []step {
	if s.tool == pixi {
		install := []string{s.program, "install", "--manifest-path", filepath.Join(directory, "pixi.toml")}
		if slices.Contains(s.files, "pixi.lock") {
			install = append(install, "--frozen")
		}
		return []step{{argv: install}}
	}
	venv := []string{s.program, "venv", "--no-project"}
	if s.python != "" {
		venv = append(venv, "--python", s.python)
	}
	made := step{argv: append(venv, directory)}
	if s.tool == uvSync {
		sync := []string{s.program, "sync", "--frozen", "--no-dev", "--no-install-project", "--no-editable", "--project", s.directory}
		return []step{made, {sync, []string{"UV_PROJECT_ENVIRONMENT=" + directory}}}
	}
	install := []string{s.program, "pip", "install", "--python", filepath.Join(directory, "bin", "python"), "-r", filepath.Join(s.directory, "requirements.txt")}
	if !s.hashed {
		install = append(install, "numpy") // a version in the file holds for it
	}
	return []step{made, {argv: install}}
}

func (s *site) copyFiles(directory string) error {
	for _, name := range s.files {
		if err := s.copyFile(directory, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) copyFile(directory, name string) error {
	from, _, err := openFile(s.directory, name, maxFile)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(directory, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, maxFile))
	return errors.Join(err, to.Close())
}

// verify refuses an environment that would not work, or whose files have changed during the build.
func (s *site) verify(ctx context.Context, directory string) error {
	report := conda.Examine(ctx, conda.EnvPath{Kind: conda.Directory, Path: directory}, s.builder.Run, s.builder.Variables)
	if err := report.Err(); err != nil {
		var p *conda.Problem
		if errors.As(err, &p) && report.Version != "" && report.Numpy == "" {
			return fmt.Errorf("environment of %s: %s; %s", s.tool, strings.ReplaceAll(p.Text, directory, "it"), s.addNumpy()) // bound: a problem, which is short
		}
		return fmt.Errorf("environment of %s: %w", s.tool, err)
	}
	now, err := find(s.directory)
	if err != nil {
		return err
	}
	if now == nil || now.digest != s.digest {
		return fmt.Errorf("%s changed while its environment was made; load the model again", s.tool)
	}
	return nil
}

// addNumpy is the remedy of requirements without numpy.
func (s *site) addNumpy() string {
	switch s.tool {
	case pixi:
		return "add it with `pixi add numpy` in the model directory"
	case uvSync:
		return "add it with `uv add numpy` in the model directory"
	}
	return "add a line with numpy to requirements.txt"
}

// lastLines bounds the lines of a program's output in an error.
const lastLines = 10

// run runs a program. The error contains the command and the last lines of its output.
func (s *site) run(ctx context.Context, step step) (string, error) {
	variables := append(slices.Clone(s.variables), step.variables...) // bound: the server's variables
	output, err := s.builder.Run(ctx, step.argv, variables, s.directory)
	command := strings.Join(step.argv, " ") // bound: paths, and maxVersion
	switch {
	case err == nil:
		return output, nil
	case ctx.Err() != nil:
		return output, fmt.Errorf("`%s` did not end in time: %w%s", command, context.Cause(ctx), tail(output))
	}
	return output, fmt.Errorf("`%s`: %w%s", command, err, tail(output))
}

// ask runs a program for one line of output: the last, since warnings may precede it.
func (s *site) ask(ctx context.Context, argv ...string) (string, error) {
	output, err := s.run(ctx, step{argv: argv})
	output = strings.TrimSpace(output)
	return output[strings.LastIndexByte(output, '\n')+1:], err
}

// cleared are variables of the server that would direct uv, pixi or the interpreter to a different
// environment.
var cleared = []string{
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON",
	"UV_PROJECT", "UV_WORKING_DIRECTORY", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX", "UV_FROZEN", "UV_LOCKED",
	"PIXI_PROJECT_MANIFEST", "PIXI_PROJECT_ROOT", "PIXI_IN_SHELL",
}

// variables are the server's variables for the programs of a build.
//
// bound: the server's variables
func (b *Builder) variables() []string {
	kept := slices.DeleteFunc(slices.Clone(b.Variables), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(cleared, name)
	})
	return append(kept, "NO_COLOR=1", "UV_NO_PROGRESS=1", "PIXI_NO_PROGRESS=true")
}

// look finds a program on the server's PATH, but not in its working directory.
func (b *Builder) look(name string) string {
	for _, v := range b.Variables {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, directory := range filepath.SplitList(list) {
			path := filepath.Join(directory, name)
			info, err := os.Stat(path)
			if filepath.IsAbs(directory) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// tail returns the end of a program's output, on separate lines.
//
// bound: what Run returns
func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > lastLines {
		lines = lines[len(lines)-lastLines:]
	}
	text := strings.Join(lines, "\n")
	if text == "" {
		return ""
	}
	return "\n" + text
}
