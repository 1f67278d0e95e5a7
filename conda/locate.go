package conda

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// directoryVariable stands for the model directory in a value of EXECUTION_ENV_PATH.
const directoryVariable = "$$TRITON_MODEL_DIRECTORY"

// Kind is the kind of an EnvPath.
type Kind int

// The kinds of targets.
const (
	Archive     Kind = 1 // a file that is to be unpacked
	Directory   Kind = 2 // an environment, or a project that has one
	Interpreter Kind = 3 // a program
)

// EnvPath is the target of an EXECUTION_ENV_PATH value. Path is absolute, and canonical except for
// the last element of an interpreter: the link python distinguishes a virtual environment from its
// base.
type EnvPath struct {
	Kind Kind
	Path string
	// Archive is the archive that the caller has unpacked to Path, if any. Problems then refer to
	// the archive, since repairs of the unpacked copy would not last.
	Archive string
}

// Locate finds the target of an EXECUTION_ENV_PATH value for a model in the given directory. The
// errors are Triton's texts, each followed by the diagnosis.
func Locate(value, modelDirectory string) (EnvPath, error) {
	if value == "" {
		return EnvPath{}, errors.New("The archive path is empty.")
	}
	path, err := Named(value, modelDirectory)
	if err != nil {
		return EnvPath{}, fmt.Errorf("Failed to get the canonical path for %s. %w", shortened(value), err)
	}
	named := strings.ReplaceAll(value, directoryVariable, modelDirectory) // bound: maxPath
	envPath, err := look(path)
	if errors.Is(err, fs.ErrNotExist) {
		if real, followed := filepath.EvalSymlinks(named); followed == nil && filepath.IsAbs(named) {
			return look(real) // ".." as the kernel takes it
		}
		return EnvPath{}, fmt.Errorf("Failed to get the canonical path for %s. %s", path, whyMissing(value, path, modelDirectory))
	}
	return envPath, err
}

// maxPath is the length of the longest path that Linux opens, in bytes.
const maxPath = 4096

// Named returns the path in an EXECUTION_ENV_PATH value as written: absolute, without resolving
// links. ".." is resolved textually, as in Triton's core.
func Named(value, modelDirectory string) (string, error) {
	if n := len(value) + strings.Count(value, directoryVariable)*(len(modelDirectory)-len(directoryVariable)); n > maxPath {
		return "", fmt.Errorf("It has %d bytes, at most %d are possible", n, maxPath)
	}
	return filepath.Abs(strings.ReplaceAll(value, directoryVariable, modelDirectory)) // bound: maxPath
}

// look examines an absolute path.
func look(path string) (EnvPath, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return EnvPath{}, err
		}
		return EnvPath{}, fmt.Errorf("Failed to get the canonical path for %s. %w", path, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return EnvPath{}, fmt.Errorf("stat() of : %s returned error. %w", real, err)
	}
	switch {
	case info.IsDir():
		return EnvPath{Kind: Directory, Path: real}, nil
	case !info.Mode().IsRegular():
		return EnvPath{}, fmt.Errorf("archive_read_open_filename() failed. %s is a %s, want an archive, a directory or a python", real, special(info.Mode()))
	}
	program, err := isProgram(real)
	if errors.Is(err, fs.ErrPermission) {
		err = closed(real)
	}
	if err != nil {
		return EnvPath{}, fmt.Errorf("archive_read_open_filename() failed. %w", err)
	}
	if !program {
		return EnvPath{Kind: Archive, Path: real}, nil
	}
	directory, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return EnvPath{}, fmt.Errorf("Failed to get the canonical path for %s. %w", path, err)
	}
	return EnvPath{Kind: Interpreter, Path: filepath.Join(directory, filepath.Base(path))}, nil
}

// special names the kind of a file that is neither regular nor a directory.
func special(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// isProgram reports whether a file begins like a program.
func isProgram(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head [4]byte
	n, err := io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return bytes.HasPrefix(head[:n], []byte("\x7fELF")) || bytes.HasPrefix(head[:n], []byte("#!")), nil
}

// whyMissing explains why there is nothing at the path of a value.
func whyMissing(value, path, modelDirectory string) string {
	if strings.Contains(value, "://") {
		return "Environments are read from local files: copy it beside the model, and name it with " + directoryVariable
	}
	if link, target, ok := danglingLink(path); ok {
		return fmt.Sprintf("%s is a link to %s, which does not exist", link, target)
	}
	if !filepath.IsAbs(value) && !strings.Contains(value, directoryVariable) {
		if _, err := os.Stat(filepath.Join(modelDirectory, value)); err == nil {
			return fmt.Sprintf("A relative path counts from the working directory of the server. The model directory has %s: write %s/%s", value, directoryVariable, value)
		}
		return "A relative path counts from the working directory of the server: use an absolute path, or one that begins with " + directoryVariable
	}
	there := path
	for there != "/" {
		if _, err := os.Stat(there); err == nil {
			break
		}
		there = filepath.Dir(there)
	}
	missing := strings.TrimPrefix(strings.TrimPrefix(path, there), "/")
	missing, _, _ = strings.Cut(missing, "/")
	return fmt.Sprintf("%s has no %s", there, missing)
}

// mostLinks is the number of links that Linux follows.
const mostLinks = 40

// danglingLink finds the first link on the path whose target is missing. An archive may have links
// that lead in a circle: they have no such target.
func danglingLink(path string) (link, target string, ok bool) { return followLinks(path, mostLinks) }

func followLinks(path string, most int) (link, target string, ok bool) {
	if most == 0 {
		return "", "", false
	}
	for at := path; at != "/" && at != "."; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			continue
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return "", "", false
		}
		if target, err = os.Readlink(at); err != nil {
			return "", "", false
		}
		if _, err := os.Stat(at); err == nil || errors.Is(err, unix.ELOOP) {
			return "", "", false
		}
		next := target
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(at), next)
		}
		if deeper, last, ok := followLinks(next, most-1); ok {
			return deeper, last, true
		}
		return at, target, true
	}
	return "", "", false
}
