package version

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestExecutorFindsTheBackend finds what runs a model, in directories as Triton's own are. DIR
// stands for the backends' directory, MODEL for the model's.
func TestExecutorFindsTheBackend(t *testing.T) {
	backends := t.TempDir()
	testkit.WriteFiles(t, backends, map[string]string{
		"based/model.py": "", "both/model.py": "", "both/libtriton_both.so": "", "empty/other.py": "", "lib/libtriton_lib.so": "",
		"lib/named.so": "",
	})
	if err := os.MkdirAll(filepath.Join(backends, "directory", "model.py"), 0o700); err != nil {
		t.Fatal(err)
	}
	python := echoes{}
	const (
		unknown   = "unable to find backend library for backend '%s', try specifying runtime on the model configuration."
		noScript  = "unable to find Python backend based backend library 'model.py' for model 'm', searched: 'DIR/%s/model.py'"
		noLibrary = "unable to find backend library '%s' for model 'm', searched: 'MODEL/1' 'MODEL' 'DIR/%s' "
		escapes   = "backend library name '%s' escapes backend directory 'DIR/%s', for model 'm', check model config runtime field"
		native    = "model 'm' needs the backend library '%s', which this server cannot run"
	)
	say := func(text string, names ...string) string {
		for _, name := range names {
			text = strings.Replace(text, "%s", name, 1)
		}
		return text
	}
	for _, c := range []struct {
		name, backend, runtime string
		file                   string // beside the model's
		script                 string
		code                   infer.Code
		want                   string
	}{
		{name: "built in", backend: "python"},
		{name: "built in, by its library", backend: "python", runtime: "libtriton_python.so"},
		{name: "built in, by a script that is missing", backend: "python", runtime: "model.py", code: infer.InvalidArg, want: say(noScript, "python")},
		{name: "built in, by another library", backend: "python", runtime: "x.so", code: infer.InvalidArg, want: say(noLibrary, "x.so", "python")},
		{name: "based", backend: "based", script: "based"},
		{name: "based, by its script", backend: "based", runtime: "model.py", script: "based"},
		{name: "based, by a library that is missing", backend: "based", runtime: "x.so", code: infer.InvalidArg, want: say(noLibrary, "x.so", "based")},
		{name: "library and script", backend: "both", code: infer.Unsupported, want: say(native, "libtriton_both.so")},
		{name: "library and script, by the script", backend: "both", runtime: "model.py", script: "both"},
		{name: "library of the model", backend: "based", file: "libtriton_based.so", code: infer.Unsupported, want: say(native, "libtriton_based.so")},
		{name: "library of the version", backend: "based", file: "1/libtriton_based.so", code: infer.Unsupported, want: say(native, "libtriton_based.so")},
		{name: "library", backend: "lib", code: infer.Unsupported, want: say(native, "libtriton_lib.so")},
		{name: "library by name", backend: "lib", runtime: "named.so", code: infer.Unsupported, want: say(native, "named.so")},
		{name: "nothing", backend: "empty", code: infer.InvalidArg, want: say(unknown, "empty")},
		{name: "no directory", backend: "nope", code: infer.InvalidArg, want: say(unknown, "nope")},
		{name: "no directory, by script", backend: "nope", runtime: "model.py", code: infer.InvalidArg, want: say(noScript, "nope")},
		{name: "script is a directory", backend: "directory", code: infer.InvalidArg, want: say(unknown, "directory")},
		{name: "name leaves the directory", backend: "../" + filepath.Base(backends) + "/based", code: infer.InvalidArg, want: say(unknown, "../"+filepath.Base(backends)+"/based")},
		{name: "runtime leaves the directory", backend: "based", runtime: "../based/model.py", code: infer.InvalidArg, want: say(escapes, "../based/model.py", "based")},
		{name: "absolute runtime", backend: "based", runtime: "/etc/passwd", code: infer.InvalidArg, want: say(escapes, "/etc/passwd", "based")},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"m/config.pbtxt": `backend: "` + c.backend + `" runtime: "` + c.runtime + `"`, "m/1/model.py": ""}
			if c.file != "" {
				files["m/"+c.file] = ""
			}
			root := t.TempDir()
			testkit.WriteFiles(t, root, files)
			opened, err := repository.Open([]string{root}, repository.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			d, _, err := opened.Read(repository.Identity{Name: "m"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			l := NewLoader(Settings{
				Backends: map[string]backend.Backend{"python": python}, BackendDirectory: backends,
				BackendSettings: func(name string) map[string]string { return map[string]string{"of": name} },
			}, nil)
			by, err := l.executor(d, 1)
			if c.want != "" {
				want := strings.NewReplacer("DIR", backends, "MODEL", d.Directory).Replace(c.want)
				if err == nil || infer.AsError(err).Message != want || infer.AsError(err).Code != c.code {
					t.Errorf("got error %v, want %v %q", err, c.code, want)
				}
				return
			}
			if err != nil {
				t.Fatalf("got error %v, want none", err)
			}
			env, runtime := by.env(nil, d, 1), by.describe(d).Config.GetRuntime()
			if c.script == "" {
				if env.Runtime != "" || env.Settings != nil || runtime != c.runtime {
					t.Errorf("got script %q, settings %v, runtime %q of a backend that is built in", env.Runtime, env.Settings, runtime)
				}
				return
			}
			if want := filepath.Join(backends, c.script, "model.py"); env.Runtime != want {
				t.Errorf("got script %q, want %q", env.Runtime, want)
			}
			if env.Settings["of"] != c.backend || runtime != "model.py" {
				t.Errorf("got settings %v, runtime %q, want those of %s, model.py", env.Settings, runtime, c.backend)
			}
			if d.Config.GetRuntime() != c.runtime {
				t.Errorf("the description has changed: its runtime is %q", d.Config.GetRuntime())
			}
		})
	}
}
