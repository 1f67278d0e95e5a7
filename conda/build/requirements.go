package build

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxFile         = 64 << 20 // bytes of a file that is not parsed; locks of large projects have some MiB
	maxRequirements = 8 << 20  // bytes of a requirements.txt; a package with hashes has some KiB
	maxLine         = 1 << 20  // bytes of a line in it, with its continuations
	maxVersion      = 1 << 10  // bytes of a .python-version
	maxIncludes     = 100      // files that a requirements.txt leads to
)

// requirements are one model's requirements.
type requirements struct {
	directory string
	tool      tool
	files     []string // input files, by name in the directory. bound: maxIncludes
	digest    string   // of the files, and of the local packages that they name
	hashed    bool     // packages without a hash are refused
	version   string   // Python's, from .python-version; "": any
}

// tool is the program that makes an environment, by its input file.
type tool string

const (
	pixi   tool = "pixi.toml"
	uvSync tool = "uv.lock"
	uvPip  tool = "requirements.txt"
)

// program is the name of the tool's program.
func (t tool) program() string {
	if t == pixi {
		return "pixi"
	}
	return "uv"
}

// find returns the most exact requirements in a model directory, or nil.
func find(directory string) (*requirements, error) {
	there := func(name string) bool {
		info, err := os.Stat(filepath.Join(directory, name))
		return err == nil && info.Mode().IsRegular()
	}
	r := &requirements{directory: directory}
	switch {
	case there("pixi.toml"):
		r.tool, r.files = pixi, []string{"pixi.toml"}
		if there("pixi.lock") {
			r.files = append(r.files, "pixi.lock")
		}
	case there("pyproject.toml") && there("uv.lock"):
		r.tool, r.files = uvSync, []string{"pyproject.toml", "uv.lock"}
	case there("requirements.txt"):
		r.tool, r.files = uvPip, []string{"requirements.txt"}
	default:
		return nil, nil
	}
	if r.tool != pixi && there(".python-version") {
		text, err := read(directory, ".python-version", maxVersion)
		if err != nil {
			return nil, err
		}
		version := string(text) // bound: maxVersion
		r.version, _, _ = strings.Cut(strings.TrimSpace(version), "\n")
		r.files = append(r.files, ".python-version")
	}
	return r, r.sum()
}

// openFile opens a file of the model, which may be a link inside its directory.
func openFile(directory, name string, most int64) (*os.File, int64, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, 0, fmt.Errorf("%s has %d bytes (%v), want a file of at most %d", name, info.Size(), info.Mode().Type(), most)
	}
	file, err := root.Open(name)
	return file, info.Size(), err
}

// read reads a small file of the model.
func read(directory, name string, most int64) ([]byte, error) {
	file, _, err := openFile(directory, name, most)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most)) // bound: the callers' constants
}

// sum sums the files, including those that a requirements.txt includes, and computes digest.
func (r *requirements) sum() error {
	sum := sha256.New()
	for i := 0; i < len(r.files); i++ { // it grows by included files
		name, add := r.files[i], r.sumFile
		if r.tool == uvPip && name != ".python-version" {
			add = r.sumRequirements
		}
		if err := add(sum, name); err != nil {
			return err
		}
	}
	r.digest = fmt.Sprintf("%x", sum.Sum(nil))
	return nil
}

// begin writes what precedes the content of a file.
func begin(sum io.Writer, name string, size int64) { fmt.Fprintf(sum, "%q %d\n", name, size) }

// sumFile sums a file that the tool alone interprets.
func (r *requirements) sumFile(sum io.Writer, name string) error {
	file, size, err := openFile(r.directory, name, maxFile)
	if err == nil {
		defer file.Close()
		begin(sum, name, size)
		_, err = io.CopyN(sum, file, size)
	}
	if err != nil {
		return fmt.Errorf("read the model's requirements: %w", err)
	}
	return nil
}

// sumRequirements sums a requirements.txt and the local packages in it, and adds the files that it
// includes.
func (r *requirements) sumRequirements(sum io.Writer, name string) error {
	text, err := read(r.directory, name, maxRequirements)
	if err != nil {
		return fmt.Errorf("read the model's requirements: %w", err)
	}
	begin(sum, name, int64(len(text)))
	_, _ = sum.Write(text) // a hash takes all
	r.hashed = r.hashed || bytes.Contains(text, []byte("--require-hashes"))
	return references(name, text, func(file string) error {
		if !slices.Contains(r.files, file) {
			r.files = append(r.files, file)
		}
		if len(r.files) > maxIncludes {
			return fmt.Errorf("requirements.txt includes more than %d files", maxIncludes)
		}
		return nil
	}, func(path string) error { return r.sumLocal(sum, path) })
}

// sumLocal adds a package in the model directory, or a directory of packages: names, sizes and
// times, since wheels may be large.
func (r *requirements) sumLocal(sum io.Writer, path string) error {
	root, err := os.OpenRoot(r.directory)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil // not a path
	}
	if err != nil {
		return fmt.Errorf("requirements.txt names %s: %w", path, err)
	}
	stamp := func(name string, info fs.FileInfo) {
		text := fmt.Appendf(nil, "%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
		begin(sum, name, int64(len(text)))
		_, _ = sum.Write(text)
	}
	stamp(path, info)
	if !info.IsDir() {
		return nil
	}
	directory, err := root.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return err
	}
	byName := make(map[string]fs.FileInfo, len(entries)) // bound: the files of the model
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			byName[entry.Name()] = info
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		stamp(path+"/"+name, byName[name])
	}
	return nil
}

// references finds the references of a requirements file: included files, and words that may name a
// local package or a directory of packages. All must be in the model directory.
//
// bound: maxRequirements for text, and maxLine for a line and its words
func references(name string, text []byte, included, local func(path string) error) error {
	lines := bufio.NewScanner(bytes.NewReader(bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line, _, _ := strings.Cut(" "+lines.Text(), " #")
		words := strings.Fields(strings.ReplaceAll(line, "=", " "))
		if len(words) == 0 {
			continue
		}
		option, rest := words[0], words[1:]
		for _, short := range []string{"-r", "-c", "-e", "-f"} {
			if attached, ok := strings.CutPrefix(option, short); ok && attached != "" {
				option, rest = short, append([]string{attached}, rest...)
			}
		}
		switch option {
		case "-e", "--editable":
			return fmt.Errorf("%s has %q: an environment in the cache has no editable packages; name the package without -e", name, shortened(strings.TrimSpace(line)))
		case "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints":
			if len(rest) == 0 || strings.Contains(rest[0], "://") {
				continue // uv reports the error
			}
			file := filepath.Join(filepath.Dir(name), rest[0])
			if filepath.IsAbs(rest[0]) || !filepath.IsLocal(file) {
				return fmt.Errorf("%s includes %s, which is outside of the model directory; copy it there", name, shortened(rest[0]))
			}
			if err := included(file); err != nil {
				return err
			}
		default:
			for _, word := range words {
				word = strings.TrimPrefix(word, "file:")
				if path := filepath.Join(filepath.Dir(name), word); !strings.HasPrefix(word, "-") && !filepath.IsAbs(word) && filepath.IsLocal(path) {
					if err := local(path); err != nil {
						return err
					}
				}
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%s has a line of more than %d bytes", name, maxLine)
	}
	return lines.Err()
}

// shortened truncates a text of a model's author for an error.
func shortened(text string) string { return strings.ToValidUTF8(text[:min(len(text), 300)], "") }
