package conda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Report is the result of Examine.
type Report struct {
	Path string `json:"path"`
	// Archive is the EnvPath's.
	Archive string `json:"archive,omitempty"`
	Form    Form   `json:"form,omitempty"`
	// Python is the program; Version and Numpy are its own answers.
	Python   string     `json:"python,omitempty"`
	Version  string     `json:"version,omitempty"`
	Numpy    string     `json:"numpy,omitempty"`
	Problems []*Problem `json:"problems"` // bound: one for each check
}

// Err returns the first problem that keeps models from running, or nil.
func (r *Report) Err() error {
	for _, p := range r.Problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}

// String returns the report as `nereid env doctor` prints it.
func (r *Report) String() string {
	var b strings.Builder // bound: the report of a command
	fmt.Fprintf(&b, "%s\n", r.Path)
	for _, row := range [][2]string{{"archive", r.Archive}, {"form", string(r.Form)}, {"python", r.Python}, {"version", r.Version}, {"numpy", r.Numpy}} {
		if row[1] != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", row[0], row[1])
		}
	}
	for _, p := range r.Problems {
		word := "problem"
		if p.Warning {
			word = "warning"
		}
		fmt.Fprintf(&b, "  %-8s %s\n", word, p.Text)
		if p.Remedy != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", "remedy", p.Remedy)
		}
	}
	if r.Err() == nil {
		fmt.Fprintf(&b, "  models can run here\n")
	}
	return b.String()
}

// Examine inspects an environment and asks its interpreter. base are the server's variables, in the
// form of os.Environ. It ends when ctx does.
func Examine(ctx context.Context, envPath EnvPath, run Run, base []string) *Report {
	r := &Report{Path: envPath.Path, Archive: envPath.Archive, Problems: []*Problem{}}
	if envPath.Kind == Archive {
		r.Problems = append(r.Problems, problem("unpack it, and name the directory", "%s is an archive, which is not looked into", envPath.Path))
		return r
	}
	e, err := Inspect(envPath)
	if err != nil {
		// The recognised parts are reported beside the problem.
		e, _ = recognise(envPath)
		var p *Problem
		if !errors.As(err, &p) {
			p = problem("", "%v", err)
		}
		r.Problems = append(r.Problems, p)
	}
	if e != nil {
		r.Form, r.Python, r.Version = e.Form, e.Python, e.Version
	}
	switch {
	case err != nil:
	case e.Python == "":
		p := problem("install a Python into it if the model needs the packages that are in it", "%s has bin/activate and no bin/python: the interpreter of the server runs the model", e.name())
		p.Warning = true
		r.Problems = append(r.Problems, p)
	default:
		e.ask(ctx, r, run, base)
	}
	return r
}

// Diagnose explains why an environment's interpreter does not run the stub, or returns nil. It runs
// the interpreter.
func (e *Environment) Diagnose(ctx context.Context, run Run, base []string) error {
	if err := e.check(); err != nil || e.Python == "" {
		return err
	}
	r := &Report{Path: e.name()}
	e.ask(ctx, r, run, base)
	return r.Err()
}

// question is the program that asks an interpreter about itself. Every Python version can run it,
// so that an old one can report its age. The answer is the last line.
const question = `
import sys
out = {"version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix}
try:
    import numpy
    out["numpy"] = str(getattr(numpy, "__version__", ""))
    out["file"] = str(getattr(numpy, "__file__", None) or "")
    numpy.zeros(1) + 1
except BaseException:
    kind, error, _ = sys.exc_info()
    while getattr(error, "__cause__", None) is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    out["error"] = type(error).__name__ + ": " + lines[-1]
    out["missing"] = str(getattr(error, "name", None) or "")
try:
    import json
    sys.stdout.write("\n" + json.dumps(out) + "\n")
except ImportError:
    sys.stdout.write("\n{\"version\": \"%s\", \"error\": \"there is no module json\"}\n" % out["version"])
`

// findings is the output of the program.
type findings struct {
	Version string `json:"version"`
	Prefix  string `json:"prefix"`
	Numpy   string `json:"numpy"`
	File    string `json:"file"` // numpy's
	Error   string `json:"error"`
	Missing string `json:"missing"` // the module that was not found
}

// ask runs the interpreter and adds its answers to the report.
func (e *Environment) ask(ctx context.Context, r *Report, run Run, base []string) {
	add := func(p *Problem) { r.Problems = append(r.Problems, p) }
	output, err := run(ctx, []string{e.Python, "-c", question}, e.Variables(base), "/")
	if ctx.Err() != nil {
		add(problem("", "%s did not end in time: %v", e.Python, context.Cause(ctx)))
		return
	}
	var a findings
	last := strings.TrimSpace(output)
	last = last[strings.LastIndexByte(last, '\n')+1:]
	if json.Unmarshal([]byte(last), &a) != nil { // bound: what Run returns
		add(e.silent(output, err))
		return
	}
	r.Version, r.Numpy = a.Version, a.Numpy
	if p := e.checkVersion(a.Version); p != nil {
		add(p)
		return // further problems concern another Python
	}
	switch {
	case a.Error != "" && a.Missing == "numpy":
		add(problem(e.install("numpy"), "%s has no numpy", e.name()))
	case a.Error != "":
		add(e.brokenNumpy(a))
	case e.Directory != "" && a.File != "" && !inside(e.Directory, a.File) && !inside(a.Prefix, a.File) && !e.sharesPackages():
		p := problem(e.install("numpy"), "numpy %s comes from %s, outside of %s", a.Numpy, filepath.Dir(a.File), e.Directory)
		p.Warning = true
		add(p)
	}
}

func inside(directory, file string) bool { return strings.HasPrefix(file, directory+"/") }

// sharesPackages reports whether a virtual environment sees the packages of its base.
func (e *Environment) sharesPackages() bool {
	return e.Form == Venv && strings.EqualFold(e.setting("include-system-site-packages"), "true")
}

// install is the command that installs packages into the environment.
func (e *Environment) install(packages string) string {
	if e.Archive != "" {
		return fmt.Sprintf("install it where the archive was packed, with `conda install -p PREFIX %s`, and pack it again with `conda-pack -p PREFIX --force -o %s`", packages, quote(e.Archive))
	}
	if e.Form == Conda {
		return fmt.Sprintf("install it with `conda install -p %s %s`", quote(e.Directory), packages)
	}
	return fmt.Sprintf("install it with `%s -m pip install %s` or `uv pip install --python %s %s`", quote(e.Python), packages, quote(e.Python), packages)
}

var (
	glibcMissing  = regexp.MustCompile("version `?GLIBC_([0-9.]+)'? not found")
	libraryAbsent = regexp.MustCompile(`(\S+\.so[.0-9]*): cannot open shared object file`)
)

// brokenNumpy is the problem of a numpy that cannot be imported.
func (e *Environment) brokenNumpy(a findings) *Problem {
	text := fmt.Sprintf("numpy of %s cannot be imported: %s", e.name(), a.Error)
	remedy := fmt.Sprintf("install it again with `%s -m pip install --force-reinstall numpy` or `uv pip install --reinstall --python %s numpy`", quote(e.Python), quote(e.Python))
	switch {
	case e.Archive != "":
		remedy = e.rebuild("install it again where the archive was packed and pack it once more")
	case e.Form == Conda:
		remedy = fmt.Sprintf("install it again with `conda install --force-reinstall -p %s numpy`", quote(e.Directory))
	}
	if m := glibcMissing.FindStringSubmatch(a.Error); m != nil {
		remedy = fmt.Sprintf("run the server in an image with glibc %s or later, or install a numpy that was built for an older one", m[1])
	} else if m := libraryAbsent.FindStringSubmatch(a.Error); m != nil {
		remedy = fmt.Sprintf("install the library %s, or %s", m[1], remedy)
	}
	return problem(remedy, "%s", text)
}

// silent is the problem of an interpreter that does not answer.
func (e *Environment) silent(output string, err error) *Problem {
	last := strings.TrimSpace(output)
	if at := strings.LastIndexByte(last, '\n'); at >= 0 {
		last = last[at+1:]
	}
	how := "its output is not understood"
	if err != nil {
		how = err.Error()
	}
	if last != "" {
		how += ": " + last
	}
	remedy := e.rebuild("")
	switch {
	case strings.Contains(output, "No module named 'encodings'"):
		remedy = e.rebuild("unpack the whole interpreter, with its lib/python3.N")
	case glibcMissing.MatchString(output):
		remedy = fmt.Sprintf("run the server in an image with glibc %s or later", glibcMissing.FindStringSubmatch(output)[1])
	case libraryAbsent.MatchString(output):
		remedy = fmt.Sprintf("install the library %s", libraryAbsent.FindStringSubmatch(output)[1])
	}
	return problem(remedy, "%s does not run: %s", e.Python, how)
}
