package conda

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oldest is the minor version of the first Python 3 that the stub runs on.
const oldest = 8

// noPython explains why a directory has no interpreter, after Triton's text for a directory that is
// no environment.
func noPython(envPath EnvPath) error {
	activate := filepath.Join(envPath.Path, "bin", "activate")
	p := noPythonIn(envPath.Path)
	if envPath.Archive != "" {
		p = noPythonPacked(envPath)
	}
	if _, err := os.Stat(activate); errors.Is(err, fs.ErrNotExist) {
		p.Text = fmt.Sprintf("Path %s does not exist. The Python environment should contain an 'activate' script. %s", activate, strings.ToUpper(p.Text[:1])+p.Text[1:])
	}
	return p
}

// noPythonPacked is the problem of an archive without an interpreter at the expected path.
func noPythonPacked(envPath EnvPath) *Problem {
	if _, err := os.Stat(filepath.Join(envPath.Path, "pixi-pack.json")); err == nil {
		return problem(fmt.Sprintf("unpack it with `pixi-unpack %s`, and name the resulting directory env", quote(envPath.Archive)),
			"%s holds the packages of pixi-pack, which are not installed yet", envPath.Archive)
	}
	if inside, _ := pythonBelow(envPath.Path); inside != "" { // the caller has just made the directory
		return problem(fmt.Sprintf("pack only the contents of that directory: `tar -czf env.tar.gz -C %s .`", quote(inside)),
			"%s has no bin/python, but %s/bin/python", envPath.Archive, inside)
	}
	return problem("pack the environment like conda-pack, with bin at the top of the archive", "%s has no bin/python", envPath.Archive)
}

// pythonBelow returns the name of a subdirectory with an interpreter, or "".
func pythonBelow(directory string) (name string, err error) {
	err = each(directory, func(entry fs.DirEntry) bool {
		if _, err := findPython(filepath.Join(directory, entry.Name())); err == nil {
			name = entry.Name()
		}
		return name == ""
	})
	return name, err
}

func noPythonIn(directory string) *Problem {
	python := filepath.Join(directory, "bin", "python")
	if _, err := os.Lstat(python); errors.Is(err, fs.ErrPermission) {
		return closed(python)
	}
	if _, err := os.Stat(filepath.Join(directory, "pixi-pack.json")); err == nil {
		return problem("unpack it with `pixi-unpack environment.tar`, and name the resulting directory env",
			"%s holds the packages of pixi-pack, which are not installed yet", directory)
	}
	name, err := pythonBelow(directory)
	if errors.Is(err, fs.ErrPermission) {
		return closed(directory)
	}
	if name != "" {
		inside := filepath.Join(directory, name)
		return problem(fmt.Sprintf("name the directory %s, or pack only its contents: `tar -czf env.tar.gz -C %s .`", inside, quote(name)),
			"there is no %s, but %s has a bin/python", python, inside)
	}
	if formOf(directory) == Conda {
		return problem(fmt.Sprintf("install them with `conda install -p %s python numpy`", quote(directory)),
			"the conda environment %s has no python: there is no %s", directory, python)
	}
	return problem("name a directory that has bin/python, or an interpreter", "there is no %s", python)
}

// closed is the problem of a file that this process may not read or run.
func closed(path string) *Problem {
	shut := path
	for at := path; at != "/"; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil {
			break
		}
		shut = filepath.Dir(at)
	}
	return problem(fmt.Sprintf("grant it with `chmod -R a+rX %s`", quote(shut)), "the server (uid %d) has no permission for %s", os.Geteuid(), shut)
}

// check finds problems that keep the interpreter from running at all.
func (e *Environment) check() error {
	if strings.Contains(e.Directory, ":") {
		return problem("move it to a path without one", "the path of the environment %s contains a colon, which separates the directories of PATH", e.Directory)
	}
	if e.Python == "" {
		return nil
	}
	if link, target, ok := danglingLink(e.Python); ok {
		return problem(e.rebuild("install that Python again"), "%s is a link to %s, which does not exist: the Python of the environment was removed or moved", link, target)
	}
	info, err := os.Stat(e.Python)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return closed(e.Python)
	case errors.Is(err, unix.ELOOP):
		return problem(e.rebuild(""), "the links of %s lead in a circle", e.Python)
	case err != nil:
		return problem("", "%v", err)
	case !info.Mode().IsRegular():
		return problem("name the program itself", "%s is not a file", e.Python)
	case info.Mode()&0o111 == 0 && e.Archive != "":
		return problem("pack the environment with a tool that keeps modes, such as conda-pack", "bin/%s in %s is not executable (mode %v)", filepath.Base(e.Python), e.Archive, info.Mode().Perm())
	case info.Mode()&0o111 == 0:
		return problem(fmt.Sprintf("fix it with `chmod a+x %s`, or pack the environment with a tool that keeps modes", quote(e.Python)), "%s is not executable (mode %v)", e.Python, info.Mode().Perm())
	}
	if err := unix.Faccessat(unix.AT_FDCWD, e.Python, unix.X_OK, unix.AT_EACCESS); errors.Is(err, unix.EACCES) {
		if mounted, at := noexec(e.Python); mounted {
			return problem(fmt.Sprintf("mount it with `mount -o remount,exec %s`, or put the environments elsewhere (--backend-config=python,env-cache-directory=PATH)", quote(at)),
				"%s is on a file system that is mounted noexec (%s)", e.Python, at)
		}
		return closed(e.Python)
	}
	if p := checkProgram(e); p != nil {
		return p
	}
	if p := e.checkVersion(e.Version); p != nil {
		return p
	}
	return nil
}

// rebuild explains how to make an environment of this form again, after another remedy.
func (e *Environment) rebuild(first string) string {
	minor := e.Version
	if parts := strings.SplitN(minor, ".", 4); len(parts) > 2 {
		minor = strings.Join(parts[:2], ".")
	}
	return e.rebuildWith(first, minor)
}

// rebuildWith is rebuild with another Python.
func (e *Environment) rebuildWith(first, minor string) string {
	if first != "" {
		first += ", or "
	}
	switch {
	case e.Archive != "":
		return fmt.Sprintf("%spack another environment, with Python %s and numpy", first, orNew(minor))
	case e.Form == Conda:
		return fmt.Sprintf("%screate it again with `conda create -p %s python=%s numpy`", first, quote(e.Directory), orNew(minor))
	case e.Form == Venv:
		return fmt.Sprintf("%screate it again with `uv venv --clear --python %s %s` and install its packages", first, orNew(minor), quote(e.Directory))
	}
	// The directory may hold more than an environment, so it must not be replaced.
	return fmt.Sprintf("%sname an environment created with `uv venv --python %s DIRECTORY`", first, orNew(minor))
}

// orNew is a version for a command if none is known.
func orNew(minor string) string {
	if minor == "" {
		return "3.12"
	}
	return minor
}

// checkVersion refuses a Python that the stub does not run on.
func (e *Environment) checkVersion(version string) *Problem {
	parts := strings.SplitN(version, ".", 3)
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	if version != "" && (major < 3 || major == 3 && minor < oldest) {
		return problem(e.rebuildWith("", "3.12"), "the Python of %s is %s, want 3.%d or later", e.name(), version, oldest)
	}
	return nil
}

// name is the environment's name in texts.
func (e *Environment) name() string {
	if e.Archive != "" {
		return e.Archive
	}
	if e.Directory != "" {
		return e.Directory
	}
	return e.Python
}

// noexec reports whether a file is on a file system mounted without the right to execute, and its
// mount point.
func noexec(path string) (bool, string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, ""
	}
	var fsys, above unix.Statfs_t
	if err := unix.Statfs(real, &fsys); err != nil || fsys.Flags&unix.ST_NOEXEC == 0 {
		return false, ""
	}
	at := filepath.Dir(real)
	for at != "/" {
		if err := unix.Statfs(filepath.Dir(at), &above); err != nil || above.Fsid != fsys.Fsid {
			break
		}
		at = filepath.Dir(at)
	}
	return true, at
}
