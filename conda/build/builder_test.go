package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/rs/zerolog"
)

// recorder runs programs and records their arguments.
type recorder struct {
	mu    sync.Mutex
	calls [][]string
}

func (r *recorder) run(ctx context.Context, argv, env []string, dir string) (string, error) {
	r.mu.Lock()
	r.calls = append(r.calls, argv)
	r.mu.Unlock()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env, command.Dir = env, dir
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// made returns the number of calls that create or install something.
func (r *recorder) made() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		if slices.Contains(call, "venv") || slices.Contains(call, "sync") || slices.Contains(call, "install") {
			n++
		}
	}
	return n
}

// builder returns a Builder with its own cache. Its PATH starts with programs.
func builder(t *testing.T, programs string, variables ...string) (*Builder, *recorder) {
	t.Helper()
	r := &recorder{}
	c, err := cache.Open(cache.Options{Directory: filepath.Join(t.TempDir(), "cache"), Log: zerolog.Nop(), Run: r.run})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	variables = append([]string{"PATH=" + programs + ":/usr/bin:/bin", "HOME=" + t.TempDir()}, variables...)
	return New(Options{Cache: c, Run: r.run, Python: testkit.Python(t).Path, Variables: variables, Log: zerolog.Nop()}), r
}

// offline returns a Builder whose uv installs only from the wheels that `make environments` has
// downloaded.
func offline(t *testing.T) (*Builder, *recorder) {
	t.Helper()
	wheels, tools := testkit.Environment(t, "wheels"), testkit.Environment(t, "tools")
	if fit, _ := filepath.Glob(fmt.Sprintf("%s/*-cp3%d-*", wheels, testkit.Python(t).Minor)); len(fit) == 0 {
		t.Skipf("the wheels in %s are for another Python than %v", wheels, testkit.Python(t))
	}
	programs := t.TempDir()
	if err := os.Symlink(tools+"/bin/uv", programs+"/uv"); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, programs, map[string]string{"uv.toml": "no-index = true\nfind-links = [\"" + wheels + "\"]\n"})
	return builder(t, programs, "UV_CONFIG_FILE="+programs+"/uv.toml", "UV_PYTHON_DOWNLOADS=never", "UV_NO_CACHE=1", "VIRTUAL_ENV=/not/this/one")
}

// check checks that models can run in an environment of the given form.
func check(t *testing.T, b *Builder, env *cache.Environment, form conda.Form) {
	t.Helper()
	r := conda.Examine(t.Context(), conda.EnvPath{Kind: conda.Directory, Path: env.Directory}, b.Run, b.Variables)
	if r.Err() != nil || r.Form != form || r.Numpy == "" {
		t.Errorf("got %v, want a %s that models can run in", r, form)
	}
}

// TestRequirementsBecomeAnEnvironment builds an environment with the real uv: once for two models
// with the same file, and again when the file changes. The file does not list numpy.
func TestRequirementsBecomeAnEnvironment(t *testing.T) {
	b, r := offline(t)
	one, two := t.TempDir(), t.TempDir()
	for _, model := range []string{one, two} {
		testkit.WriteFiles(t, model, map[string]string{"requirements.txt": "# nothing but numpy, which comes by itself\n"})
	}
	env, err := b.Environment(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	defer env.Release()
	check(t, b, env, conda.Venv)
	made := r.made()
	again, err := b.Environment(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Release()
	if again.Directory != env.Directory || r.made() != made {
		t.Errorf("the same requirements: got %s after %d calls, want %s after %d", again.Directory, r.made(), env.Directory, made)
	}
	testkit.WriteFiles(t, two, map[string]string{"requirements.txt": "numpy\n"})
	other, err := b.Environment(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if other.Directory == env.Directory {
		t.Errorf("changed requirements: got the environment of the old ones")
	}
	entries, err := os.ReadDir(one)
	if err != nil || len(entries) != 1 {
		t.Errorf("the model directory has %v, %v, want its requirements alone", entries, err)
	}
}

// TestLockBecomesAnEnvironment locks a project with the real uv and installs it.
func TestLockBecomesAnEnvironment(t *testing.T) {
	testkit.Story(t)
	b, _ := offline(t)
	model := t.TempDir()
	write := func(dependencies string) {
		t.Helper()
		testkit.WriteFiles(t, model, map[string]string{"pyproject.toml": fmt.Sprintf("[project]\nname = \"m\"\nversion = \"1\"\nrequires-python = \"==3.%d.*\"\ndependencies = [%s]\n", testkit.Python(t).Minor, dependencies)})
		s := &site{requirements: &requirements{directory: model}, builder: b, variables: b.variables()}
		if _, err := s.run(t.Context(), step{argv: []string{b.look("uv"), "lock", "--python", testkit.Python(t).Path}}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WriteFiles(t, model, map[string]string{".python-version": testkit.Python(t).Path + "\n"})
	write("")
	_, err := b.Environment(t.Context(), model)
	if want := "environment of uv.lock: it has no numpy; add it with `uv add numpy` in the model directory"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without numpy: got %v, want %q", err, want)
	}
	write(`"numpy"`)
	env, err := b.Environment(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	defer env.Release()
	check(t, b, env, conda.Venv)
}

// pixiScript replaces pixi, which no registry has. It creates the same files as pixi, with the
// interpreter in $REAL, and records its arguments.
const pixiScript = `#!/bin/sh
if [ "$1" = --version ]; then echo 'warning: a line before it' >&2; echo "pixi 9.9.9"; exit; fi
echo "$@" >>"$CALLS"
[ -n "$FAIL" ] && { echo "no such package: $FAIL"; exit 3; }
project=$(dirname "$3")
env=$project/.pixi/envs/default
mkdir -p "$env/conda-meta" "$env/bin"
printf '#!/bin/sh\nexec %s "$@"\n' "$REAL" >"$env/bin/python"
chmod +x "$env/bin/python"
`

func TestPixiIsCalledWithACopyOfItsFiles(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(programs+"/pixi", []byte(pixiScript), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	b, _ := builder(t, programs, "CALLS="+calls, "REAL="+testkit.Python(t).Path)
	model := testkit.WriteFiles(t, t.TempDir(), map[string]string{"pixi.toml": "[workspace]\n"})
	var environments []*cache.Environment
	build := func() {
		t.Helper()
		env, err := b.Environment(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		check(t, b, env, conda.Conda)
		environments = append(environments, env)
	}
	build()
	testkit.WriteFiles(t, model, map[string]string{"pixi.lock": "version: 6\n"})
	build()
	build()
	for _, env := range environments {
		defer env.Release()
	}
	got, err := os.ReadFile(calls)
	want := "install --manifest-path " + environments[0].Directory + "/pixi.toml\ninstall --manifest-path " + environments[1].Directory + "/pixi.toml --frozen\n"
	if err != nil || string(got) != want {
		t.Errorf("got calls %q, %v, want %q", got, err, want)
	}
	if lock, err := os.ReadFile(environments[1].Directory + "/pixi.lock"); err != nil || string(lock) != "version: 6\n" {
		t.Errorf("the lock that pixi reads: got %q, %v", lock, err)
	}

	b.Variables = append(b.Variables, "FAIL=torch")
	testkit.WriteFiles(t, model, map[string]string{"pixi.lock": "version: 7\n"})
	_, err = b.Environment(t.Context(), model)
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nno such package: torch") || !strings.Contains(err.Error(), "pixi install --manifest-path") {
		t.Errorf("a pixi that fails: got %v, want the command, its status and its words", err)
	}
}

func TestBuildNeedsItsTool(t *testing.T) {
	b, _ := builder(t, t.TempDir())
	for file, want := range map[string]string{
		"requirements.txt": "there is no program uv on PATH; install it, or name an environment with the parameter EXECUTION_ENV_PATH",
		"pixi.toml":        "there is no program pixi on PATH",
	} {
		model := testkit.WriteFiles(t, t.TempDir(), map[string]string{file: ""})
		if _, err := b.Environment(t.Context(), model); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	if env, err := b.Environment(t.Context(), t.TempDir()); env != nil || err != nil {
		t.Errorf("no requirements: got %v, %v, want none", env, err)
	}
}

// TestUnsatisfiableRequirementsAreTold checks that the error has uv's message, and that a corrected
// file works afterwards.
func TestUnsatisfiableRequirementsAreTold(t *testing.T) {
	testkit.Story(t)
	b, _ := offline(t)
	model := testkit.WriteFiles(t, t.TempDir(), map[string]string{"requirements.txt": "no-such-package-in-these-wheels==1\n"})
	_, err := b.Environment(t.Context(), model)
	if err == nil || !strings.Contains(err.Error(), "no-such-package-in-these-wheels") || !strings.Contains(err.Error(), "uv pip install") {
		t.Errorf("got %v, want uv's words", err)
	}
	testkit.WriteFiles(t, model, map[string]string{"requirements.txt": "numpy\n"})
	env, err := b.Environment(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	env.Release()
}

func TestBuildEndsWithItsContext(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(programs+"/pixi", []byte("#!/bin/sh\n[ \"$1\" = --version ] && exec echo pixi 1\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, _ := builder(t, programs)
	model := testkit.WriteFiles(t, t.TempDir(), map[string]string{"pixi.toml": ""})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Environment(ctx, model); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it did not end in time", err)
	}
}
