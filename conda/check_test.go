package conda

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// realPython returns an interpreter's path and content.
func realPython(t *testing.T) (path string, content []byte) {
	t.Helper()
	path, err := filepath.EvalSymlinks(testkit.Python(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

func writeProgram(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// otherMachine changes a program's architecture to a foreign one.
func otherMachine(program []byte) []byte {
	other := elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		other = elf.EM_X86_64
	}
	changed := bytes.Clone(program)
	binary.LittleEndian.PutUint16(changed[18:], uint16(other))
	return changed
}

// otherLoader changes a program's loader to a path that does not exist on this machine.
func otherLoader(t *testing.T, content []byte) []byte {
	t.Helper()
	p := &program{in: bytes.NewReader(content)}
	if err := p.read(); err != nil {
		t.Fatal(err)
	}
	loader := p.loader()
	musl := "/lib/ld-musl-xxx.so.1"
	return bytes.Replace(content, []byte(loader+"\x00"), []byte(musl+strings.Repeat("\x00", len(loader)+1-len(musl))), 1)
}

// newerGlibc makes a program require a future glibc.
func newerGlibc(t *testing.T, path string, program []byte) []byte {
	t.Helper()
	wanted := glibcWanted(path)
	if wanted == "" {
		t.Fatalf("%s asks for no version of glibc", path)
	}
	return bytes.ReplaceAll(program, []byte("GLIBC_"+wanted+"\x00"), []byte("GLIBC_2."+strings.Repeat("9", len(wanted)-2)+"\x00"))
}

// TestInspectSaysWhyNothingCanRun breaks environments in one way each and checks the error.
func TestInspectSaysWhyNothingCanRun(t *testing.T) {
	python, program := realPython(t)
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, root string)
		want  []string // parts of the error; $E is the directory
	}{
		{"empty directory", func(*testing.T, string) {}, []string{
			"Path $E/bin/activate does not exist. The Python environment should contain an 'activate' script.", "There is no $E/bin/python", "name a directory that has bin/python",
		}},
		{"one folder too high", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"my env/bin/python": ""})
		}, []string{"Path $E/bin/activate does not exist.", "but $E/my env has a bin/python", "tar -czf env.tar.gz -C 'my env' ."}},
		{"conda without python", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"conda-meta/history": ""})
		}, []string{"The conda environment $E has no python", "conda install -p $E python numpy"}},
		{"pixi-pack", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"pixi-pack.json": "{}", "channel/noarch/repodata.json": "{}"})
		}, []string{"$E holds the packages of pixi-pack", "pixi-unpack"}},
		{"base interpreter gone", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"pyvenv.cfg": "home = /opt/py311/bin\nversion = 3.11.7\n"})
			Link(t, "/opt/py311/bin/python3.11", root+"/bin/python3")
			Link(t, "python3", root+"/bin/python")
		}, []string{"$E/bin/python3 is a link to /opt/py311/bin/python3.11, which does not exist", "uv venv --clear --python 3.11 $E"}},
		{"links in a circle", func(t *testing.T, root string) {
			Link(t, "python3", root+"/bin/python")
			Link(t, "python", root+"/bin/python3")
		}, []string{"the links of $E/bin/python lead in a circle"}},
		{"links in a circle that the kernel does not follow", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"a/b/": ""})
			Link(t, "a/b", root+"/bin")
			Link(t, "../bin/python", root+"/a/b/python")
		}, []string{"$E/bin/python is a link to ../bin/python"}},
		{"uv project whose environment is spoiled", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"uv.lock": ""})
			Link(t, "/nowhere/python", root+"/.venv/bin/python")
		}, []string{"$E/.venv/bin/python is a link to /nowhere/python"}},
		{"not executable", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"bin/python": string(program)})
		}, []string{"$E/bin/python is not executable (mode -rw-r--r--)", "chmod a+x $E/bin/python"}},
		{"a directory", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"bin/python/": ""})
		}, []string{"$E/bin/python is not a file"}},
		{"empty file", func(t *testing.T, root string) { writeProgram(t, root+"/bin/python", nil) }, []string{"$E/bin/python is empty"}},
		{"text", func(t *testing.T, root string) {
			writeProgram(t, root+"/bin/python", []byte("version https://git-lfs\n"))
		}, []string{"$E/bin/python is not a Linux program"}},
		{"short script", func(t *testing.T, root string) { writeProgram(t, root+"/bin/python", []byte("#!/gone/sh")) }, []string{
			"$E/bin/python is a script for \"/gone/sh\", which is not on this machine",
		}},
		{"cut", func(t *testing.T, root string) { writeProgram(t, root+"/bin/python", program[:60]) }, []string{"$E/bin/python is not a complete program"}},
		{"another machine's", func(t *testing.T, root string) {
			writeProgram(t, root+"/bin/python", otherMachine(program))
		}, []string{"$E/bin/python is a program for ", "and this machine is ", "use an environment for "}},
		{"musl", func(t *testing.T, root string) {
			writeProgram(t, root+"/bin/python", otherLoader(t, program))
		}, []string{"was built for musl, whose loader /lib/ld-musl-xxx.so.1 is not on this machine", "run the server in an image with musl"}},
		{"newer glibc", func(t *testing.T, root string) {
			writeProgram(t, root+"/bin/python", newerGlibc(t, python, program))
		}, []string{"$E/bin/python needs glibc 2.9", "and this machine has glibc 2.", "ldd --version"}},
		{"old venv", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"pyvenv.cfg": "version_info = 3.7.16.final.0\n"})
			Link(t, python, root+"/bin/python")
		}, []string{"the Python of $E is 3.7.16, want 3.8 or later", "uv venv --clear --python 3.12 $E"}},
		{"old conda", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"conda-meta/python-2.7.18-h42bf7aa_3.json": "{}"})
			Link(t, python, root+"/bin/python")
		}, []string{"the Python of $E is 2.7.18, want 3.8 or later", "conda create -p $E python=3.12"}},
		{"old interpreter", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"lib/python3.7/os.py": ""})
			Link(t, python, root+"/bin/python")
		}, []string{"the Python of $E is 3.7, want 3.8 or later", "name an environment created with `uv venv --python 3.12 DIRECTORY`"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := Canonical(t)
			c.spoil(t, root)
			_, err := Inspect(EnvPath{Kind: Directory, Path: root})
			var p *Problem
			if !errors.As(err, &p) || p.Remedy == "" {
				t.Fatalf("got %v, want a Problem with a remedy", err)
			}
			for _, want := range c.want {
				if want = strings.ReplaceAll(want, "$E", root); !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			// The report has the same error.
			if r := Examine(t.Context(), EnvPath{Kind: Directory, Path: root}, RunCommand, []string{"PATH=/usr/bin:/bin"}); r.Err() == nil || r.Err().Error() != err.Error() {
				t.Errorf("Examine: got %v, want %v", r.Err(), err)
			}
		})
	}
}

// unprivileged runs f as a user that owns no files, if this process can do so.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread stays locked, so it ends with the goroutine, together with its user.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestInspectNamesInaccessiblePaths(t *testing.T) {
	_, program := realPython(t)
	root := Canonical(t)
	for at := root; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeProgram(t, root+"/closed/bin/python", program)
	writeProgram(t, root+"/program/bin/python", program)
	if err := errors.Join(os.Chmod(root+"/closed/bin", 0), os.Chmod(root+"/program/bin/python", 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		_ = os.Chmod(root+"/program/bin/python", 0o010) // the owner may not run it
	}
	testkit.WriteFiles(t, root, map[string]string{"archive.tar.gz": ""})
	if err := os.Chmod(root+"/archive.tar.gz", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(root+"/closed/bin", 0o755) })
	unprivileged(t, func() {
		for directory, want := range map[string]string{
			root + "/closed":  "has no permission for " + root + "/closed/bin; grant it with `chmod -R a+rX " + root + "/closed/bin`",
			root + "/program": "has no permission for " + root + "/program/bin/python; grant it with",
		} {
			if _, err := Inspect(EnvPath{Kind: Directory, Path: directory}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", directory, err, want)
			}
		}
		_, err := Locate(root+"/archive.tar.gz", root)
		want := "archive_read_open_filename() failed. the server (uid "
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), root+"/archive.tar.gz; grant it with `chmod -R a+rX "+root+"/archive.tar.gz`") {
			t.Errorf("got %v, want %q", err, want)
		}
	})
}

// TestInspectNamesANoexecMount mounts a noexec file system in a mount namespace of its thread
// and checks the error.
func TestInspectNamesANoexecMount(t *testing.T) {
	root := Canonical(t)
	_, program := realPython(t)
	inside := func() (err error, mounted error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return nil, err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return nil, err
		}
		if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOEXEC, "size=256m"); err != nil {
			return nil, err
		}
		if err := errors.Join(os.MkdirAll(root+"/env/bin", 0o755), os.WriteFile(root+"/env/bin/python", program, 0o755)); err != nil {
			return err, nil
		}
		_, err = Inspect(EnvPath{Kind: Directory, Path: root + "/env"})
		return err, nil
	}
	type outcome struct{ err, mounted error }
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, with its mounts
		err, mounted := inside()
		done <- outcome{err, mounted}
	}()
	got := <-done
	if got.mounted != nil {
		t.Skipf("this user may not mount: %v", got.mounted)
	}
	if want := "is on a file system that is mounted noexec (" + root + ")"; got.err == nil || !strings.Contains(got.err.Error(), want) {
		t.Errorf("got %v, want %q", got.err, want)
	}
}

func TestInspectRefusesAPathThatPathsCannotHold(t *testing.T) {
	root := filepath.Join(Canonical(t), "a:b")
	handmade(t, root)
	if _, err := Inspect(EnvPath{Kind: Directory, Path: root}); err == nil || !strings.Contains(err.Error(), root+" contains a colon") {
		t.Errorf("got %v, want that the path has a colon", err)
	}
}

// handmade creates a virtual environment without packages.
func handmade(t *testing.T, root string) {
	t.Helper()
	python, _ := realPython(t)
	testkit.WriteFiles(t, root, map[string]string{"pyvenv.cfg": "home = " + filepath.Dir(python) + "\n"})
	Link(t, python, root+"/bin/python")
}

// sitePackages returns the package directory of a handmade environment.
func sitePackages(t *testing.T, root string) string {
	t.Helper()
	output, err := RunCommand(t.Context(), []string{root + "/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"}, nil, "/")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return strings.TrimSpace(output)
}

// TestExamineReportsTheInterpretersMessage checks the reports about interpreters that run but are
// unusable, or fail with a message.
func TestExamineReportsTheInterpretersMessage(t *testing.T) {
	brokenNumpy := func(lines string) func(t *testing.T, root string) {
		return func(t *testing.T, root string) {
			handmade(t, root)
			testkit.WriteFiles(t, sitePackages(t, root), map[string]string{"numpy/__init__.py": lines})
		}
	}
	script := func(lines string) func(t *testing.T, root string) {
		return func(t *testing.T, root string) { writeProgram(t, root+"/bin/python", []byte("#!/bin/sh\n"+lines)) }
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, root string)
		want []string
	}{
		{"no numpy", handmade, []string{"$E has no numpy", "$E/bin/python -m pip install numpy", "uv pip install --python $E/bin/python numpy"}},
		{"numpy that asks for a newer glibc", brokenNumpy("raise ImportError(\"/lib/libc.so.6: version `GLIBC_2.99' not found (required by x.so)\")"), []string{
			"numpy of $E cannot be imported: ImportError: /lib/libc.so.6: version `GLIBC_2.99' not found", "an image with glibc 2.99 or later",
		}},
		{"numpy without a library", brokenNumpy("try:\n raise ImportError('libgfortran.so.5: cannot open shared object file: No such file or directory')\nexcept ImportError as e:\n raise ImportError('IMPORTANT: PLEASE READ THIS\\n\\nadvice') from e"), []string{
			"cannot be imported: ImportError: libgfortran.so.5: cannot open", "install the library libgfortran.so.5",
		}},
		{"numpy for another Python", brokenNumpy("import numpy._core_that_is_not_there"), []string{"cannot be imported: ModuleNotFoundError: No module named 'numpy._core_that_is_not_there'", "--force-reinstall numpy"}},
		{"no library of Python", script("echo \"ModuleNotFoundError: No module named 'encodings'\"; exit 1"), []string{"$E/bin/python does not run: exit status 1: ModuleNotFoundError", "unpack the whole interpreter"}},
		{"old", script(`echo '{"version": "3.6.15", "error": "there is no module json"}'`), []string{"the Python of $E is 3.6.15, want 3.8 or later"}},
		{"no Python", script("echo hello; exit 3"), []string{"$E/bin/python does not run: exit status 3: hello"}},
		{"library of the interpreter gone", script("echo 'python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file: No such file or directory'; exit 127"), []string{"install the library libpython3.11.so.1.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := Canonical(t)
			c.make(t, root)
			r := Examine(t.Context(), EnvPath{Kind: Directory, Path: root}, RunCommand, []string{"PATH=/usr/bin:/bin"})
			if r.Err() == nil {
				t.Fatalf("got no problem: %v", r)
			}
			for _, want := range c.want {
				if want = strings.ReplaceAll(want, "$E", root); !strings.Contains(r.String(), want) {
					t.Errorf("got %q, want %q in it", r, want)
				}
			}
			e, err := Inspect(EnvPath{Kind: Directory, Path: root})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Diagnose(t.Context(), RunCommand, []string{"PATH=/usr/bin:/bin"}); err == nil || err.Error() != r.Err().Error() {
				t.Errorf("Diagnose: got %v, want %v", err, r.Err())
			}
		})
	}
}

func TestExamineWarnsOfANumpyFromOutside(t *testing.T) {
	root := Canonical(t)
	handmade(t, root)
	elsewhere := Canonical(t)
	testkit.WriteFiles(t, elsewhere, map[string]string{"numpy/__init__.py": "__version__ = '9.9'\ndef zeros(n): return n\n"})
	r := Examine(t.Context(), EnvPath{Kind: Directory, Path: root}, RunCommand, []string{"PYTHONPATH=" + elsewhere})
	if r.Err() != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "numpy 9.9 comes from "+elsewhere+"/numpy, outside of "+root) {
		t.Errorf("got %v, want a warning", r)
	}
	if !strings.Contains(r.String(), "models can run here") {
		t.Errorf("got %q, want that models can run", r)
	}
	testkit.WriteFiles(t, root, map[string]string{"pyvenv.cfg": string(readText(root+"/pyvenv.cfg")) + "include-system-site-packages = true\n"})
	if r := Examine(t.Context(), EnvPath{Kind: Directory, Path: root}, RunCommand, []string{"PYTHONPATH=" + elsewhere}); len(r.Problems) != 0 {
		t.Errorf("an environment that shares the packages of its base: got %v, want no warning", r)
	}
}

func TestExamineEndsWithItsContext(t *testing.T) {
	root := Canonical(t)
	writeProgram(t, root+"/bin/python", []byte("#!/bin/sh\nexec sleep 1000\n"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r := Examine(ctx, EnvPath{Kind: Directory, Path: root}, RunCommand, []string{"PATH=/usr/bin:/bin"}); r.Err() == nil || !strings.Contains(r.Err().Error(), "did not end in time") {
		t.Errorf("got %v, want that it did not end in time", r)
	}
}

func TestVersionsAreComparedByNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"2.9", "2.34", -1}, {"2.34", "2.34", 0}, {"2.2.5", "2.2", 1}, {"", "2.0", -1}} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("compareVersions(%q, %q): got %d, want %d", c.a, c.b, got, c.want)
		}
	}
	newest := ""
	for _, name := range []string{"GLIBC_2.2.5", "GLIBC_PRIVATE", "GLIBC_2.34", "GLIBC_", "GLIBC_ABI_DT_RELR", "GLIBC_2.9", "GCC_3.0"} {
		newest = newerVersion(newest, name)
	}
	if newest != "2.34" {
		t.Errorf("newerVersion: got %q, want 2.34", newest)
	}
}

// TestProblemsOfAnArchiveAreMendedInIt checks that remedies change the archive, not the unpacked
// copy. The next change of the archive would undo changes to the copy.
func TestProblemsOfAnArchiveAreMendedInIt(t *testing.T) {
	const archive = "/models/env.tar.gz"
	for _, c := range []struct {
		name string
		make func(t *testing.T, root string)
		want []string
	}{
		{"nothing", func(*testing.T, string) {}, []string{
			"Path $E/bin/activate does not exist. The Python environment should contain an 'activate' script. /models/env.tar.gz has no bin/python; pack the environment like conda-pack",
		}},
		{"a directory around it", func(t *testing.T, root string) { handmade(t, root+"/my env") }, []string{
			"/models/env.tar.gz has no bin/python, but my env/bin/python", "`tar -czf env.tar.gz -C 'my env' .`",
		}},
		{"pixi-pack", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"pixi-pack.json": "{}"})
		}, []string{"`pixi-unpack /models/env.tar.gz`"}},
		{"modes lost", func(t *testing.T, root string) {
			testkit.WriteFiles(t, root, map[string]string{"bin/python": "#!/bin/sh\n"})
		}, []string{"bin/python in /models/env.tar.gz is not executable", "a tool that keeps modes"}},
		{"no numpy", handmade, []string{
			"/models/env.tar.gz has no numpy", "`conda install -p PREFIX numpy`", "`conda-pack -p PREFIX --force -o /models/env.tar.gz`",
		}},
		{"numpy is broken", func(t *testing.T, root string) {
			handmade(t, root)
			testkit.WriteFiles(t, sitePackages(t, root), map[string]string{"numpy/__init__.py": "import nothing_there"})
		}, []string{"numpy of /models/env.tar.gz cannot be imported: ModuleNotFoundError", "install it again where the archive was packed"}},
		{"old", func(t *testing.T, root string) {
			handmade(t, root)
			testkit.WriteFiles(t, root, map[string]string{"pyvenv.cfg": "version = 3.7.9\n"})
		}, []string{"the Python of /models/env.tar.gz is 3.7.9", "pack another environment, with Python 3.12 and numpy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := Canonical(t)
			c.make(t, root)
			r := Examine(t.Context(), EnvPath{Kind: Directory, Path: root, Archive: archive}, RunCommand, []string{"PATH=/usr/bin:/bin"})
			if r.Err() == nil || r.Archive != archive {
				t.Fatalf("got %v, want a problem of %s", r, archive)
			}
			for _, want := range c.want {
				if want = strings.ReplaceAll(want, "$E", root); !strings.Contains(r.Err().Error(), want) {
					t.Errorf("got %q, want %q in it", r.Err(), want)
				}
			}
			if p := r.Problems[0]; strings.Contains(p.Remedy, root) {
				t.Errorf("the remedy %q changes what was unpacked", p.Remedy)
			}
		})
	}
}

// TestAnEnvironmentWithoutAPythonIsItsVariables checks an environment with bin/activate and no
// interpreter. As in Triton, models run with the server's interpreter and the environment's
// variables.
func TestAnEnvironmentWithoutAPythonIsItsVariables(t *testing.T) {
	root := Canonical(t)
	testkit.WriteFiles(t, root, map[string]string{"bin/activate": "exit 1"})
	for _, envPath := range []EnvPath{{Kind: Directory, Path: root}, {Kind: Directory, Path: root, Archive: "/models/env.tar.gz"}} {
		e, err := Inspect(envPath)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(e.Variables([]string{"PATH=/usr/bin", "PYTHONHOME=/gone"}), " ")
		want := strings.ReplaceAll("PATH=$E/bin:/usr/bin VIRTUAL_ENV=$E VIRTUAL_ENV_PROMPT=($E) LD_LIBRARY_PATH=$E/lib:", "$E", root)
		if e.Python != "" || got != want {
			t.Errorf("got the program %q and %s, want none and %s", e.Python, got, want)
		}
		if r := Examine(t.Context(), envPath, RunCommand, nil); r.Err() != nil || len(r.Problems) != 1 || !r.Problems[0].Warning {
			t.Errorf("got %v, want a warning", r)
		}
		if err := e.Diagnose(t.Context(), RunCommand, nil); err != nil {
			t.Errorf("Diagnose: %v", err)
		}
	}
}
