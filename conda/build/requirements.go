package build

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFile     = 64 << 20 // bytes of one file; locks of large projects have some MiB
	maxIncludes = 100      // files that a requirements.txt leads to
)

// requirements are one model's requirements.
type requirements struct {
	directory string
	tool      tool
	files     []string // input files, by name in the directory
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
		text, err := read(directory, ".python-version")
		if err != nil {
			return nil, err
		}
		r.version, _, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
		r.files = append(r.files, ".python-version")
	}
	return r, r.sum()
}

// read reads a file of the model, which may be a link inside its directory.
func read(directory, name string) ([]byte, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes (%v), want a file of at most %d", name, info.Size(), info.Mode().Type(), maxFile)
	}
	return root.ReadFile(name)
}

// sum reads the files, including those that a requirements.txt includes, and computes digest.
func (r *requirements) sum() error {
	hash := sha256.New()
	add := func(name string, content []byte) { fmt.Fprintf(hash, "%q %d\n%s", name, len(content), content) }
	for i := 0; i < len(r.files); i++ { // it grows by included files
		name := r.files[i]
		text, err := read(r.directory, name)
		if err != nil {
			return fmt.Errorf("read what the model requires: %w", err)
		}
		add(name, text)
		if r.tool != uvPip || name == ".python-version" {
			continue
		}
		r.hashed = r.hashed || bytes.Contains(text, []byte("--require-hashes"))
		included, local, err := references(name, text)
		if err != nil {
			return err
		}
		for _, file := range included {
			if !slices.Contains(r.files, file) {
				r.files = append(r.files, file)
			}
		}
		if len(r.files) > maxIncludes {
			return fmt.Errorf("requirements.txt includes more than %d files", maxIncludes)
		}
		for _, path := range local {
			if err := r.sumLocal(path, add); err != nil {
				return err
			}
		}
	}
	r.digest = fmt.Sprintf("%x", hash.Sum(nil))
	return nil
}

// sumLocal adds a package in the model directory, or a directory of packages: names, sizes and
// times, since wheels may be large.
func (r *requirements) sumLocal(path string, add func(name string, content []byte)) error {
	root, err := os.OpenRoot(r.directory)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not a path
	}
	if err != nil {
		return fmt.Errorf("requirements.txt names %s: %w", path, err)
	}
	stamp := func(name string, info fs.FileInfo) {
		add(name, fmt.Appendf(nil, "%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano()))
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
	byName := make(map[string]fs.FileInfo, len(entries))
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
func references(name string, text []byte) (included, local []string, err error) {
	lines := bufio.NewScanner(bytes.NewReader(bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))))
	lines.Buffer(nil, maxFile)
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
			return nil, nil, fmt.Errorf("%s has %q: an environment in the cache has no editable packages; name the package without -e", name, strings.TrimSpace(line))
		case "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints":
			if len(rest) == 0 || strings.Contains(rest[0], "://") {
				continue // uv reports the error
			}
			file := filepath.Join(filepath.Dir(name), rest[0])
			if filepath.IsAbs(rest[0]) || !filepath.IsLocal(file) {
				return nil, nil, fmt.Errorf("%s includes %s, which is outside of the model directory; copy it there", name, rest[0])
			}
			included = append(included, file)
		default:
			for _, word := range words {
				word = strings.TrimPrefix(word, "file:")
				if path := filepath.Join(filepath.Dir(name), word); !strings.HasPrefix(word, "-") && !filepath.IsAbs(word) && filepath.IsLocal(path) {
					local = append(local, path)
				}
			}
		}
	}
	return included, local, lines.Err()
}
