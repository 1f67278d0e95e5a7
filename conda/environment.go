package conda

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Run starts a program, waits for it and returns its output: the last 64 KiB of both streams. env
// is its whole environment, dir its working directory. The output is returned even with an error.
type Run func(ctx context.Context, argv, env []string, dir string) (output string, err error)

// Form is the kind of an environment. The words are those of `nereid env doctor`.
type Form string

// The forms of environments.
const (
	Conda   Form = "conda"   // conda, micromamba, pixi: it has conda-meta
	Venv    Form = "venv"    // venv, virtualenv, uv: it has pyvenv.cfg
	Prefix  Form = "prefix"  // an interpreter with its library, unpacked somewhere
	Program Form = "program" // an interpreter of no environment, such as the machine's
)

// maxText bounds each file that is read, in bytes.
const maxText = 1 << 20

// Environment is where the stubs of a model run.
type Environment struct {
	Form Form
	// Directory is the environment's, canonical; empty for a Program.
	Directory string
	// Python is the program to start. It may be a link, which must not be resolved: the interpreter
	// finds its virtual environment by it. It is empty for an environment with bin/activate and no
	// interpreter: as in Triton, the server's interpreter runs with its variables.
	Python string
	// Version is the Python's, as far as files tell: "3.11.7", "3.11" or empty.
	Version string
	// FreeThreaded reports that the files show a build without the GIL.
	FreeThreaded bool
	// Archive is the archive that Directory was unpacked from, if any.
	Archive string
	// Ignored are lines of activate.d that seem to set a variable but were not used, as "x.sh:3:
	// reason".
	Ignored []string

	variables []variable // of a conda environment, in the order in which they are set
}

// Inspect examines a directory or an interpreter without running anything. The error is a *Problem
// if the environment cannot run here.
func Inspect(envPath EnvPath) (*Environment, error) {
	e, err := recognise(envPath)
	if err != nil {
		return nil, err
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	e.readActivation()
	return e, nil
}

// recognise finds the form of an environment and its interpreter.
func recognise(envPath EnvPath) (*Environment, error) {
	if envPath.Kind == Interpreter {
		e := &Environment{Form: Program, Python: envPath.Path}
		bin := filepath.Dir(envPath.Path)
		if form := formOf(filepath.Dir(bin)); filepath.Base(bin) == "bin" && form != Prefix {
			e.Form, e.Directory = form, filepath.Dir(bin)
		}
		e.readVersion()
		return e, nil
	}
	python, err := findPython(envPath.Path)
	directory := envPath.Path
	if errors.Is(err, fs.ErrNotExist) {
		for _, inside := range []string{".venv", ".pixi/envs/default"} {
			if in, err := filepath.EvalSymlinks(filepath.Join(envPath.Path, inside)); err == nil {
				directory = in
				python, err = findPython(in)
				if err == nil {
					break
				}
			}
		}
	}
	if python == "" {
		if _, err := os.Stat(filepath.Join(envPath.Path, "bin", "activate")); err != nil {
			return nil, noPython(envPath)
		}
		return &Environment{Form: formOf(envPath.Path), Directory: envPath.Path, Archive: envPath.Archive}, nil
	}
	e := &Environment{Form: formOf(directory), Directory: directory, Python: python, Archive: envPath.Archive}
	e.readVersion()
	return e, nil
}

// findPython finds the interpreter of a directory. It may be a dangling link.
func findPython(directory string) (string, error) {
	var first error
	for _, name := range []string{"python", "python3"} {
		path := filepath.Join(directory, "bin", name)
		_, err := os.Lstat(path)
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

func formOf(directory string) Form {
	if _, err := os.Stat(filepath.Join(directory, "conda-meta")); err == nil {
		return Conda
	}
	if _, err := os.Stat(filepath.Join(directory, "pyvenv.cfg")); err == nil {
		return Venv
	}
	return Prefix
}

var (
	libraryName = regexp.MustCompile(`^python(3\.\d+)(t?)$`)
	condaName   = regexp.MustCompile(`^python-(\d+\.\d+\.\d+)[^-]*-([^-]*)\.json$`)
)

// readVersion finds the Python version in the environment's files.
func (e *Environment) readVersion() {
	switch e.Form {
	case Program:
		return
	case Venv:
		settings := readSettings(filepath.Join(e.Directory, "pyvenv.cfg"))
		for _, key := range []string{"version", "version_info"} {
			if parts := strings.SplitN(settings[key], ".", 4); len(parts) >= 2 {
				e.Version = strings.Join(parts[:min(len(parts), 3)], ".")
			}
		}
	case Conda:
		files, _ := os.ReadDir(filepath.Join(e.Directory, "conda-meta"))
		for _, f := range files {
			if m := condaName.FindStringSubmatch(f.Name()); m != nil {
				e.Version = m[1]
				e.FreeThreaded = strings.HasSuffix(m[2], "t") && strings.Contains(m[2], "_cp3")
			}
		}
	}
	libraries, _ := os.ReadDir(filepath.Join(e.Directory, "lib"))
	var versions, free []string
	for _, l := range libraries {
		if m := libraryName.FindStringSubmatch(l.Name()); m != nil && l.IsDir() {
			versions = append(versions, m[1])
			if m[2] != "" {
				free = append(free, m[1])
			}
		}
	}
	// Several versions prove nothing: a prefix such as /usr may have more than one Python.
	if len(versions) == 1 {
		e.FreeThreaded = e.FreeThreaded || len(free) == 1
		if e.Version == "" {
			e.Version = versions[0]
		}
	}
}

// readSettings reads the "key = value" lines of a pyvenv.cfg.
func readSettings(path string) map[string]string {
	settings := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(readText(path)))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok {
			settings[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return settings
}

// readText reads a regular file of at most maxText bytes; of other files it returns nothing.
func readText(path string) []byte {
	// A pipe would block the open, and a model's author may have put one there.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxText {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return nil
	}
	return text
}
