package platforms

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// location is the location of a model: a repository and its directory there, or "".
type location struct{ path, directory string }

// errURL rejects a path that does not have the platform's form.
func (m *multiModel) errURL(url string) error {
	return infer.Errorf(infer.InvalidArg, `Invalid "url" '%s': expected a path of the form %s/<hash>/model[/<subdir>]`, url, m.base)
}

// check returns the path of a load's url. It is empty for the kernel's file systems. The error is
// for the client.
func (m *multiModel) check(url string) (path string, err error) {
	path, err = filepath.Abs(url)
	if err != nil {
		return "", m.errURL(url)
	}
	for _, kernel := range [...]string{"/dev/", "/proc/", "/sys/"} {
		if strings.HasPrefix(path+"/", kernel) {
			return "", nil
		}
	}
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(m.base, "/")+"/")
	parts := strings.SplitN(below, "/", 4)
	if !ok || len(parts) < 2 || len(parts) > 3 || parts[1] != "model" || !isPlain(parts[0]) || len(parts) == 3 && !isPlain(parts[2]) {
		return "", m.errURL(url)
	}
	return path, nil
}

// isPlain reports whether a part of a path has only the characters that the platform uses.
func isPlain(part string) bool {
	for _, c := range []byte(part) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.' && c != '_' {
			return false
		}
	}
	return part != ""
}

const (
	configFile = "config.pbtxt"
	// maxConfigBytes bounds how much of a configuration is read to detect an ensemble.
	maxConfigBytes = 1 << 20
)

// locate finds the model of a checked path. The directory is the model's own if it has a
// configuration. Otherwise it is a repository, of an ensemble and its members or of one model.
func (m *multiModel) locate(path string) location {
	if isFile(filepath.Join(path, configFile)) {
		hash, _, _ := strings.Cut(strings.TrimPrefix(path, strings.TrimSuffix(m.base, "/")+"/"), "/")
		return location{filepath.Join(m.base, hash), "model"}
	}
	at := location{path: path}
	entries, _ := os.ReadDir(path) // the registration reports errors
	for _, e := range entries {
		inside := filepath.Join(path, e.Name())
		if info, err := os.Stat(inside); err != nil || !info.IsDir() {
			continue
		}
		at.directory = e.Name()
		if isEnsemble(filepath.Join(inside, configFile)) {
			break
		}
	}
	return at
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var ensemblePlatform = regexp.MustCompile(`platform:\s*"ensemble"`)

func isEnsemble(path string) bool {
	if !isFile(path) { // a pipe would block
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes)) // bound: maxConfigBytes
	return err == nil && ensemblePlatform.Match(text)
}
