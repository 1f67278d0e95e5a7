package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// writeProgram writes an executable script.
func writeProgram(t *testing.T, path, source string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(source), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInterpreterIsFoundOnPath puts broken and old interpreters before a working one on PATH.
func TestInterpreterIsFoundOnPath(t *testing.T) {
	good := testkit.Python(t)
	silent, broken, old, works := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	writeProgram(t, filepath.Join(silent, "python3"), "#!/bin/sh\nexit 0\n")
	writeProgram(t, filepath.Join(broken, "python3"), "#!/bin/sh\necho 'cannot run'\nexit 1\n")
	if err := os.WriteFile(filepath.Join(old, "python3"), nil, 0o600); err != nil { // not executable
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(works, "python3"), fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", good.Path))
	t.Setenv("PATH", strings.Join([]string{silent, "relative", broken, old, works}, ":"))
	for _, noTemplate := range []bool{false, true} {
		r := newFixtureWith(t, "", func(c *python.Config) { c.NoTemplate = noTemplate })
		version, numpy, path, err := r.backend.Interpreter()
		if err != nil || numpy != good.Numpy || path != filepath.Join(works, "python3") || !strings.HasPrefix(version, fmt.Sprintf("3.%d.", good.Minor)) {
			t.Errorf("Interpreter: got Python %q, numpy %q, path %q, error %v", version, numpy, path, err)
		}
		m := r.start("identity", infer.Uint8)
		m.wantGood()
		m.close()
	}
}

// TestMissingInterpreterErrorListsTheAttempts checks that the error lists the attempts and a
// remedy.
func TestMissingInterpreterErrorListsTheAttempts(t *testing.T) {
	good := testkit.Python(t)
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "numpy.py"), "raise ImportError('not here')\n")
	if err := os.WriteFile(filepath.Join(dir, "numpy"), nil, 0o600); err != nil { // not executable
		t.Fatal(err)
	}
	program := func(source string) string { return writeProgram(t, filepath.Join(t.TempDir(), "python3"), source) }
	for _, test := range []struct {
		name, executable, path, pythonPath string
		want                               []string
	}{
		{"no numpy", good.Path, "", dir, []string{"python-executable " + good.Path, "ImportError: not here", "-m pip install numpy"}},
		{"no such file", filepath.Join(dir, "nothing"), "", "", []string{filepath.Join(dir, "nothing"), "program not found"}},
		{"not on PATH", "python-that-is-not", dir, "", []string{"python-executable python-that-is-not: not found on PATH"}},
		{"nothing on PATH", "", dir, "", []string{"no python3 on PATH", "--backend-config=python,python-executable=PATH"}},
		{"directory", dir, "", "", []string{"permission denied; it is a directory: name the interpreter in it, such as " + dir + "/bin/python3"}},
		{"not executable", filepath.Join(dir, "numpy"), "", "", []string{fmt.Sprintf("permission denied; user %d may not execute it", os.Geteuid())}},
		{"no interpreter of the script", program("#!" + dir + "/nothing\n"), "", "", []string{"no such file or directory; the file exists, but the program in its first line, or its loader, does not"}},
		{"another machine", program("\x7fELF"), "", "", []string{"exec format error; it is not a program for this machine, linux/"}},
		{"old Python", program("#!/bin/sh\necho stubs need Python 3.8 or newer, but this is Python 3.7 >&2\nexit 1\n"), "", "",
			[]string{"process exited with code 1 (it printed: stubs need Python 3.8 or newer, but this is Python 3.7); want Python 3.8 or newer with numpy: `"}},
		{"crash", program("#!/bin/sh\nkill -SEGV $$\n"), "", "", []string{"process was ended by signal 11 (SIGSEGV); if `", " -c 'import numpy'` crashes too"}},
		{"old Python on PATH", "", filepath.Dir(program("#!/bin/sh\nexit 1\n")), "", []string{"process exited with code 1; want Python 3.8 or newer with numpy"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.path != "" {
				t.Setenv("PATH", test.path)
			}
			if test.pythonPath != "" {
				t.Setenv("PYTHONPATH", test.pythonPath)
			}
			r := newFixtureWith(t, test.executable, nil)
			_, err := r.open(r.copyModel("identity"), modelConfig("identity", 1, infer.Uint8))
			for _, want := range test.want {
				if err == nil || !strings.Contains(infer.Detail(err), want) {
					t.Errorf("Start: got error %v, want one with %q", err, want)
				}
			}
		})
	}
}

// TestInterpreterThatDoesNotStartIsNotShortOfNumpy checks that if a variable keeps Python from
// starting, the error has Python's message and no advice about packages.
func TestInterpreterThatDoesNotStartIsNotShortOfNumpy(t *testing.T) {
	good := testkit.Python(t)
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "python3"), fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", good.Path))
	for _, test := range []struct{ name, executable, variable, value, want string }{
		{"home", good.Path, "PYTHONHOME", dir, "python-executable " + good.Path + ": Python does not start: "},
		{"home's exception", good.Path, "PYTHONHOME", dir, "(ModuleNotFoundError: No module named 'encodings')"},
		{"hash seed", good.Path, "PYTHONHASHSEED", "bad", "PYTHONHASHSEED must be"},
		{"on PATH", "", "PYTHONHASHSEED", "bad", "python3 on PATH: " + filepath.Join(dir, "python3") + ": Python does not start: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(test.variable, test.value)
			if test.executable == "" {
				t.Setenv("PATH", dir)
			}
			r := newFixtureWith(t, test.executable, nil)
			_, err := r.open(r.copyModel("identity"), modelConfig("identity", 1, infer.Uint8))
			if err == nil || !strings.Contains(infer.Detail(err), test.want) || !strings.Contains(infer.Detail(err), "check PYTHONHOME") || strings.Contains(infer.Detail(err), "numpy") {
				t.Errorf("Start: got error %v, want one with %q and without numpy", err, test.want)
			}
		})
	}
}

// TestCrashOfNumpyIsNoFaultOfTheEnvironment checks the advice for a crash of numpy that Python's
// fault handler prints as a fatal error.
func TestCrashOfNumpyIsNoFaultOfTheEnvironment(t *testing.T) {
	without := t.TempDir()
	writeProgram(t, filepath.Join(without, "numpy.py"), "import faulthandler, os, signal\nfaulthandler.enable()\nos.kill(os.getpid(), signal.SIGSEGV)\n")
	t.Setenv("PYTHONPATH", without)
	r := newFixtureWith(t, testkit.Python(t).Path, nil)
	_, err := r.open(r.copyModel("identity"), modelConfig("identity", 1, infer.Uint8))
	if err == nil || !strings.Contains(infer.Detail(err), "install numpy") || strings.Contains(infer.Detail(err), "PYTHONHOME") {
		t.Errorf("Start: got error %v, want one with advice about numpy, and none about variables", err)
	}
}

// TestInterpreterIsLookedForAgain checks that a failed search for numpy is not cached, because
// numpy may be installed later.
func TestInterpreterIsLookedForAgain(t *testing.T) {
	good := testkit.Python(t)
	dir, without := t.TempDir(), t.TempDir()
	writeProgram(t, filepath.Join(without, "numpy.py"), "raise ImportError('not here')\n")
	program := writeProgram(t, filepath.Join(dir, "python3"), fmt.Sprintf("#!/bin/sh\nPYTHONPATH='%s' exec '%s' \"$@\"\n", without, good.Path))
	r := newFixtureWith(t, program, nil)
	for range 2 {
		_, err := r.open(r.copyModel("identity"), modelConfig("identity", 1, infer.Uint8))
		if err == nil || !strings.Contains(infer.Detail(err), "ImportError: not here") {
			t.Fatalf("Start without numpy: got error %v", err)
		}
	}
	if err := os.Remove(filepath.Join(without, "numpy.py")); err != nil {
		t.Fatal(err)
	}
	r.start("identity", infer.Uint8).wantGood()
}

// TestInterpreterThatTakesTooLong checks that the error names the setting for more time.
func TestInterpreterThatTakesTooLong(t *testing.T) {
	program := writeProgram(t, filepath.Join(t.TempDir(), "python3"), "#!/bin/sh\nexec sleep 1000\n")
	r := newFixtureWith(t, program, func(c *python.Config) { c.InterpreterTimeout = 50 * time.Millisecond })
	_, err := r.open(r.copyModel("identity"), modelConfig("identity", 1, infer.Uint8))
	const want = " has not imported numpy 50ms after its start; give it more time with --backend-config=python,interpreter-timeout-seconds=N"
	if err == nil || !strings.HasSuffix(infer.Detail(err), "python-executable "+program+": "+program+want) {
		t.Errorf("got error %v, want %q at its end", err, want)
	}
}

// TestLoadEndsBeforeItsInterpreterHasStarted cancels loads that wait for the same interpreter, one
// by one. Each ends with its own context, and the last one ends the interpreter's processes. The
// next load starts it again.
func TestLoadEndsBeforeItsInterpreterHasStarted(t *testing.T) {
	good := testkit.Python(t)
	dir := t.TempDir()
	begun, allowed := filepath.Join(dir, "begun"), filepath.Join(dir, "go")
	program := writeProgram(t, filepath.Join(dir, "python3"),
		fmt.Sprintf("#!/bin/sh\nif [ -f '%s' ]; then exec '%s' \"$@\"; fi\nsleep 1000 &\n: >'%s'\nwait\n", allowed, good.Path, begun))
	r := newFixtureWith(t, program, func(c *python.Config) { c.InterpreterTimeout = 0 })
	type load struct {
		cancel context.CancelCauseFunc
		ended  chan error // one value
	}
	var loads []load
	for i := range 3 {
		config := modelConfig(fmt.Sprintf("identity%d", i), 1, infer.Uint8)
		model, err := r.backend.Open(backend.Env{Name: config.GetName(), Version: 1, Directory: r.copyModel("identity"), Config: config, Host: r.host})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		l := load{cancel, make(chan error, 1)}
		go func() { l.ended <- model.Start(ctx, config, nil, &fakeEvents{}) }()
		loads = append(loads, l)
	}
	testkit.Eventually(t, patience, func() bool { _, err := os.Stat(begun); return err == nil })
	for i, l := range loads {
		select {
		case err := <-l.ended:
			t.Fatalf("load %d ended with %v before it was cancelled", i, err)
		default:
		}
		l.cancel(errors.New("cancelled by the test"))
		if err := <-l.ended; err == nil || !strings.Contains(err.Error(), "cancelled by the test") {
			t.Errorf("load %d: got error %v, want that it was cancelled", i, err)
		}
	}
	if n := r.supervisor.Children().Count(); n != 0 {
		t.Errorf("%d processes are left, want none", n)
	}
	if err := os.WriteFile(allowed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start("identity", infer.Uint8).wantGood()
}
