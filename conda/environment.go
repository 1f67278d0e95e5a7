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

	"golang.org/x/sys/unix"
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
	// Archive is the archive that Directory was unpacked from, if any.
	Archive string
	// Ignored are lines of activate.d that seem to set a variable but were not used, as "x.sh:3:
	// reason": the first hundred. bound: maxIgnored
	Ignored []string

	variables []variable // of a conda environment, in the order in which they are set. bound: maxVariables
	bytes     int        // of all their names and values
	read      int        // bytes of files that were read for them
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
	libraryName = regexp.MustCompile(`^python(3\.\d+)t?$`)
	condaName   = regexp.MustCompile(`^python-(\d+\.\d+\.\d+)[^-]*-[^-]*\.json$`)
)

// readVersion finds the Python version in the environment's files.
func (e *Environment) readVersion() {
	switch e.Form {
	case Program:
		return
	case Venv:
		for _, key := range []string{"version", "version_info"} {
			if parts := strings.SplitN(e.setting(key), ".", 4); len(parts) >= 2 {
				e.Version = strings.Join(parts[:min(len(parts), 3)], ".")
			}
		}
	case Conda:
		last := "" // if there are several, which an update leaves
		_ = each(filepath.Join(e.Directory, "conda-meta"), func(f fs.DirEntry) bool {
			if m := condaName.FindStringSubmatch(f.Name()); m != nil && f.Name() > last {
				last, e.Version = f.Name(), m[1]
			}
			return true
		})
	}
	versions, version := 0, ""
	_ = each(filepath.Join(e.Directory, "lib"), func(l fs.DirEntry) bool {
		if m := libraryName.FindStringSubmatch(l.Name()); m != nil && l.IsDir() {
			versions++
			version = m[1]
		}
		return versions < 2
	})
	// Several versions prove nothing: a prefix such as /usr may have more than one Python.
	if versions == 1 && e.Version == "" {
		e.Version = version
	}
}

// each calls f for the entries of a directory, in no order, until f returns false. It holds few of
// them at a time: an archive may have a million in one directory.
func each(directory string, f func(fs.DirEntry) bool) error {
	in, err := os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY, 0) // a pipe does not stop it
	if err != nil {
		return err
	}
	defer in.Close()
	for {
		entries, err := in.ReadDir(256)
		for _, entry := range entries {
			if !f(entry) {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxSetting bounds a value in a pyvenv.cfg, in bytes.
const maxSetting = 1 << 10

// setting returns the value of the last line "key = value" in the environment's pyvenv.cfg.
func (e *Environment) setting(key string) (value string) {
	lines := bufio.NewScanner(bytes.NewReader(readText(filepath.Join(e.Directory, "pyvenv.cfg"))))
	for lines.Scan() {
		if name, text, ok := strings.Cut(lines.Text(), "="); ok && len(text) <= maxSetting && strings.EqualFold(strings.TrimSpace(name), key) {
			value = strings.TrimSpace(text)
		}
	}
	return value
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
	text, err := io.ReadAll(io.LimitReader(f, maxText)) // bound: maxText
	if err != nil {
		return nil
	}
	return text
}
