package conda_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestLocateFindsTheNamedEnvironment(t *testing.T) {
	root := conda.Canonical(t)
	testkit.WriteFiles(t, root, map[string]string{
		"models/m/env.tar.gz":       "\x1f\x8b, not looked at",
		"models/m/empty.tar":        "",
		"models/shared.tar":         "shared",
		"models/m/env/bin/activate": "",
		"models/m/named.tar.gz/x":   "a directory by the name of an archive",
		"models/m/run.sh":           "#!/bin/sh\n",
		"base/bin/python3.11":       "\x7fELF",
		"target/env.tar":            "beside the target",
		"target/m2/1/model.py":      "",
	})
	conda.Link(t, root+"/base/bin/python3.11", root+"/models/m/venv/bin/python")
	conda.Link(t, root+"/target/m2", root+"/models/m2")
	conda.Link(t, "env.tar.gz", root+"/models/m/link.tar.gz")
	model := root + "/models/m"
	for _, c := range []struct {
		name, value, model string
		want               conda.EnvPath
	}{
		{"at the start", "$$TRITON_MODEL_DIRECTORY/env.tar.gz", model, conda.EnvPath{Kind: conda.Archive, Path: model + "/env.tar.gz"}},
		{"not at the start", "/$$TRITON_MODEL_DIRECTORY/env.tar.gz", model, conda.EnvPath{Kind: conda.Archive, Path: model + "/env.tar.gz"}},
		{"above", "$$TRITON_MODEL_DIRECTORY/../shared.tar", model, conda.EnvPath{Kind: conda.Archive, Path: root + "/models/shared.tar"}},
		{"absolute", model + "/env", "/elsewhere", conda.EnvPath{Kind: conda.Directory, Path: model + "/env"}},
		{"directory named as an archive", model + "/named.tar.gz", "", conda.EnvPath{Kind: conda.Directory, Path: model + "/named.tar.gz"}},
		{"empty file", model + "/empty.tar", "", conda.EnvPath{Kind: conda.Archive, Path: model + "/empty.tar"}},
		{"link to an archive", model + "/link.tar.gz", "", conda.EnvPath{Kind: conda.Archive, Path: model + "/env.tar.gz"}},
		{"script", model + "/run.sh", "", conda.EnvPath{Kind: conda.Interpreter, Path: model + "/run.sh"}},
		{"python of a virtual environment stays a link", model + "/venv/bin/python", "", conda.EnvPath{Kind: conda.Interpreter, Path: model + "/venv/bin/python"}},
		{"two dots textually first", "$$TRITON_MODEL_DIRECTORY/../shared.tar", root + "/models/m2", conda.EnvPath{Kind: conda.Archive, Path: root + "/models/shared.tar"}},
		{"two dots as the kernel takes them", "$$TRITON_MODEL_DIRECTORY/../env.tar", root + "/models/m2", conda.EnvPath{Kind: conda.Archive, Path: root + "/target/env.tar"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := conda.Locate(c.value, c.model)
			if err != nil || got != c.want {
				t.Errorf("Locate(%q): got %v, %v, want %v", c.value, got, err, c.want)
			}
		})
	}
	t.Run("relative", func(t *testing.T) {
		t.Chdir(root + "/models")
		got, err := conda.Locate("m/../shared.tar", model)
		if want := (conda.EnvPath{Kind: conda.Archive, Path: root + "/models/shared.tar"}); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}

func TestLocateNamesMissingFiles(t *testing.T) {
	root := conda.Canonical(t)
	testkit.WriteFiles(t, root, map[string]string{"models/m/env.tar": "x"})
	conda.Link(t, "/nowhere/env.tar", root+"/models/m/gone.tar")
	conda.Link(t, "gone.tar", root+"/models/m/twice.tar")
	conda.Link(t, "loop", root+"/models/m/loop")
	if err := unix.Mkfifo(root+"/models/m/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	model := root + "/models/m"
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"empty", "", []string{"The archive path is empty."}},
		{"long", "/" + strings.Repeat("$$TRITON_MODEL_DIRECTORY", 1000), []string{"Failed to get the canonical path for /$$TRITON", "bytes, at most 4096 are possible"}},
		{"missing", "/no/such/env", []string{"Failed to get the canonical path for /no/such/env.", "/ has no no"}},
		{"missing in the model", "$$TRITON_MODEL_DIRECTORY/e/env", []string{"Failed to get the canonical path for " + model + "/e/env.", model + " has no e"}},
		{"relative and in the model", "env.tar", []string{"Failed to get the canonical path for " + root + "/env.tar.", "write $$TRITON_MODEL_DIRECTORY/env.tar"}},
		{"relative", "other.tar", []string{"Failed to get the canonical path for " + root + "/other.tar.", "counts from the working directory"}},
		{"dangling", model + "/twice.tar", []string{"Failed to get the canonical path for " + model + "/twice.tar.", model + "/gone.tar is a link to /nowhere/env.tar"}},
		{"loop", model + "/loop", []string{"Failed to get the canonical path for " + model + "/loop.", "too many links"}},
		{"pipe", model + "/pipe", []string{"archive_read_open_filename() failed.", "is a pipe"}},
		{"cloud", "s3://bucket/env.tar.gz", []string{"Failed to get the canonical path for ", "Environments are read from local files"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := conda.Locate(c.value, model)
			if err == nil {
				t.Fatalf("Locate(%q): got %v, want an error", c.value, got)
			}
			if len(err.Error()) > 2000 {
				t.Errorf("Locate: got an error of %d bytes", len(err.Error()))
			}
			for i, want := range c.want {
				if text := err.Error(); !strings.Contains(text, want) || i == 0 && !strings.HasPrefix(text, want) {
					t.Errorf("Locate(%q): got %q, want %q in it", c.value, text, want)
				}
			}
		})
	}
}
