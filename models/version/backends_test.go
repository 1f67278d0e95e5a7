package version_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/version"
)

// TestExecutorFindsTheBackend checks which backend runs a model, with directories like those of
// Triton. DIR stands for the backends' directory, MODEL for the model's.
func TestExecutorFindsTheBackend(t *testing.T) {
	backends := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"based/model.py": "", "both/model.py": "", "both/libtriton_both.so": "", "empty/other.py": "", "lib/libtriton_lib.so": "",
		"lib/named.so": "",
		"go/nereid_go": "", "go/model.py": "", "go/libtriton_go.so": "", "go/bin/other": "",
	})
	if err := os.MkdirAll(filepath.Join(backends, "directory", "model.py"), 0o700); err != nil {
		t.Fatal(err)
	}
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
		file                   string // an additional file in the model's directory
		script                 string
		plugin                 string
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
		{name: "plugin", backend: "go", plugin: "DIR/go/nereid_go"},
		{name: "plugin, by the library of its name", backend: "go", runtime: "libtriton_go.so", plugin: "DIR/go/nereid_go"},
		{name: "plugin, by name", backend: "go", runtime: "nereid_go", plugin: "DIR/go/nereid_go"},
		{name: "plugin, by another name", backend: "go", runtime: "bin/other", plugin: "DIR/go/bin/other"},
		{name: "plugin, by a name that is missing", backend: "go", runtime: "bin", code: infer.InvalidArg, want: say(noLibrary, "bin", "go")},
		{name: "plugin that is asked for its script", backend: "go", runtime: "model.py", script: "go"},
		{name: "plugin that is asked for a library", backend: "lib", runtime: "named.so", file: "nereid_lib", code: infer.Unsupported, want: say(native, "named.so")},
		{name: "plugin of the model", backend: "go", file: "nereid_go", plugin: "MODEL/nereid_go"},
		{name: "plugin of the version", backend: "go", file: "1/nereid_go", plugin: "MODEL/1/nereid_go"},
		{name: "plugin of the model alone", backend: "nope", file: "nereid_nope", plugin: "MODEL/nereid_nope"},
		{name: "plugin of the model in place of a library", backend: "lib", file: "nereid_lib", plugin: "MODEL/nereid_lib"},
		{name: "plugin of the model by another name", backend: "nope", runtime: "mine", file: "1/mine", plugin: "MODEL/1/mine"},
		{name: "plugin that another backend is built in for", backend: "python", file: "nereid_python"},
		{name: "runtime leaves the model", backend: "nope", runtime: "../m/1/model.py", code: infer.InvalidArg, want: say(escapes, "../m/1/model.py", "nope")},
		{name: "name leaves the directory", backend: "../" + filepath.Base(backends) + "/based", code: infer.InvalidArg, want: say(unknown, "../"+filepath.Base(backends)+"/based")},
		{name: "runtime leaves the directory", backend: "based", runtime: "../based/model.py", code: infer.InvalidArg, want: say(escapes, "../based/model.py", "based")},
		{name: "absolute runtime", backend: "based", runtime: "/etc/passwd", code: infer.InvalidArg, want: say(escapes, "/etc/passwd", "based")},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"m/config.pbtxt": strings.Replace(echoConfig, `"fake"`, `"`+c.backend+`" runtime: "`+c.runtime+`"`, 1), "m/1/model.py": ""}
			if c.file != "" {
				files["m/"+c.file] = ""
			}
			root := testkit.WriteFiles(t, t.TempDir(), files)
			replaced := strings.NewReplacer("DIR", backends, "MODEL", filepath.Join(root, "m"))
			python, plugins := &echoes{}, &echoes{}
			s := newShelf(t, root, nil, func(s *version.Settings) {
				s.Backends, s.BackendDirectory, s.Plugins = map[string]backend.Backend{"python": python}, backends, plugins
				s.BackendSettings = func(name string) map[string]string { return map[string]string{"of": name} }
			})
			v, err := s.load("m")
			if c.want != "" {
				wantError(t, err, c.code, replaced.Replace(c.want))
				return
			}
			if err != nil {
				t.Fatalf("got error %v, want none", err)
			}
			env := python.env
			if c.plugin != "" {
				env = plugins.env
			}
			if want := replaced.Replace(c.plugin); env.Plugin != want || v.Info().Plugin != want {
				t.Errorf("got plugin %q, %q, want %q", env.Plugin, v.Info().Plugin, want)
			}
			runtime := v.Info().Config.GetRuntime()
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
			if got := s.read("m").Config.GetRuntime(); got != c.runtime {
				t.Errorf("the description has changed: its runtime is %q", got)
			}
		})
	}
}
