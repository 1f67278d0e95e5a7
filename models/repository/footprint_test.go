package repository_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestFootprintTellsWhichVersionsChanged changes one thing at a time in a model's directory and
// checks whether the footprint differs, and for which versions.
func TestFootprintTellsWhichVersionsChanged(t *testing.T) {
	write := func(path, text string) func(string) error {
		return func(root string) error {
			whole := filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(whole), 0o755); err != nil {
				return err
			}
			return os.WriteFile(whole, []byte(text), 0o644)
		}
	}
	old := func(path string) func(string) error {
		return func(root string) error {
			long := time.Now().Add(-1000 * time.Hour)
			return os.Chtimes(filepath.Join(root, path), long, long)
		}
	}
	remove := func(path string) func(string) error {
		return func(root string) error { return os.RemoveAll(filepath.Join(root, path)) }
	}
	link := func(target, path string) func(string) error {
		return func(root string) error { return os.Symlink(target, filepath.Join(root, path)) }
	}
	nothing, all, one, config := "nothing", "all", "version 1", "config"
	for _, c := range []struct {
		name   string
		change func(root string) error
		want   string
		named  string // --model-config-name
	}{
		{"none", func(string) error { return nil }, nothing, ""},
		{"a version's file", write("1/model.py", "changed"), one, ""},
		{"a version's file, deep", write("1/data/deep/x", "changed"), one, ""},
		{"a version's new file", write("1/new", ""), one, ""},
		{"a version's file is gone", remove("1/data/deep/x"), one, ""},
		{"a version's file got an old time", old("1/model.py"), one, ""},
		{"a version's new directory", write("1/new/x", ""), one, ""},
		{"a version is gone", remove("1"), one, ""},
		{"another version", write("3/model.py", ""), config, ""},
		{"the config", write("config.pbtxt", "changed"), config, ""},
		{"the config got an old time", old("config.pbtxt"), config, ""},
		{"the config is gone", remove("config.pbtxt"), config, ""},
		{"labels", write("labels.txt", "changed"), all, ""},
		{"labels are gone", remove("labels.txt"), all, ""},
		{"another module", write("helper.py", ""), all, ""},
		{"a file whose name begins that of the config", write("config", ""), all, ""},
		{"warmup", write("warmup/x", ""), all, ""},
		{"configs, unused", write("configs/b.pbtxt", ""), all, ""},
		{"configs, one in use", write("configs/b.pbtxt", ""), config, "a"},
		{"the config, another one in use", write("config.pbtxt", "changed"), all, "a"},
		{"the one in use comes", write("configs/b.pbtxt", ""), config, "b"},
		{"the one in use goes", remove("configs"), config, "a"},
		{"compiled by Python", write("1/__pycache__/model.cpython-311.pyc", ""), nothing, ""},
		{"compiled by Python, above", write("__pycache__/labels.cpython-311.pyc", ""), nothing, ""},
		{"compiled by Python, deep", write("1/data/__pycache__/x.pyc", ""), nothing, ""},
		{"Vim's swap file", write("1/.model.py.swp", ""), nothing, ""},
		{"Vim's second swap file", write(".config.pbtxt.swo", ""), nothing, ""},
		{"Vim tries to write", write("1/4913", ""), nothing, ""},
		{"something of that name", write("1/4913", "data"), one, ""},
		{"a backup", write("1/model.py~", ""), nothing, ""},
		{"Emacs saves", write("1/#model.py#", ""), nothing, ""},
		{"Emacs locks", link("me@here.1:2", "1/.#model.py"), nothing, ""},
		{"LibreOffice locks", write("1/.~lock.labels.csv#", ""), nothing, ""},
		{"gedit saves", write("1/.goutputstream-ABC123", ""), nothing, ""},
		{"Kate", write("1/.model.py.kate-swp", ""), nothing, ""},
		{"JetBrains saves", write("1/model.py___jb_tmp___", ""), nothing, ""},
		{"a notebook", write(".ipynb_checkpoints/x", ""), nothing, ""},
		{"a hidden file of the model", write("1/.env", ""), one, ""},
		{"a link to a file", link("model.py", "1/linked"), one, ""},
		{"a link that leads nowhere", link("nowhere", "1/linked"), one, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			model := filepath.Join(root, "m")
			for _, path := range []string{"config.pbtxt", "labels.txt", "1/model.py", "1/data/deep/x", "2/model.py", "configs/a.pbtxt"} {
				if err := write(path, `backend: "fake"`)(model); err != nil {
					t.Fatal(err)
				}
			}
			opened, err := repository.Open([]string{root}, repository.Options{ConfigName: c.named})
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			id := repository.Identity{Name: "m"}
			before, err := opened.Footprint(id)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(model); err != nil {
				t.Fatal(err)
			}
			after, err := opened.Footprint(id)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			switch same, first, second := before.Same(after), before.SameFor(after, 1), before.SameFor(after, 2); {
			case same && first && second:
				got = nothing
			case !same && first && second:
				got = config
			case !same && !first && second:
				got = one
			case !same && !first && !second:
				got = all
			}
			if got != c.want {
				t.Errorf("got a change of %q, want %q", got, c.want)
			}
		})
	}
}

// TestFootprintFollowsLinks checks that footprints follow links to a version's directory and to
// files, but not links to directories inside a version.
func TestFootprintFollowsLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(root, "m", "config.pbtxt"): `backend: "fake"`, filepath.Join(outside, "version", "model.py"): "",
		filepath.Join(outside, "elsewhere", "x"): "", filepath.Join(outside, "file"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		filepath.Join(root, "m", "1"): filepath.Join(outside, "version"), filepath.Join(outside, "version", "up"): outside,
		filepath.Join(outside, "version", "file"): filepath.Join(outside, "file"),
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	look := func() repository.Footprint {
		t.Helper()
		p, err := opened.Footprint(repository.Identity{Name: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for path, counts := range map[string]bool{"version/model.py": true, "file": true, "elsewhere/x": false} {
		before := look()
		if err := os.WriteFile(filepath.Join(outside, path), []byte("changed"), 0o644); err != nil {
			t.Fatal(err)
		}
		if same := before.Same(look()); same == counts {
			t.Errorf("%s: the same: %v, want %v", path, same, !counts)
		}
	}
}

// TestFootprintSeesTheArchiveOutside checks that an execution environment's archive outside the
// model's directory is part of the footprint of all versions. If the path is a directory, changes
// in it do not count.
func TestFootprintSeesTheArchiveOutside(t *testing.T) {
	root := t.TempDir()
	archive, second := filepath.Join(root, "env.tar.gz"), filepath.Join(root, "second.tar.gz")
	write := func(path, text string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(text), 0o644)
	}
	link := func(target string) error {
		_ = os.Remove(archive)
		return os.Symlink(target, archive)
	}
	for path, text := range map[string]string{
		archive: "one", second: "two", filepath.Join(root, "m", "1", "model.py"): "", filepath.Join(root, "m", "env.tar.gz"): "", filepath.Join(root, "d", "lib", "x"): "",
		filepath.Join(root, "m", "config.pbtxt"): `backend: "fake" parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/../env.tar.gz" } }`,
	} {
		if err := write(path, text); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	id := repository.Identity{Name: "m"}
	_, before, err := opened.Read(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if paths := before.Paths(); len(paths) != 1 || paths[0] != archive {
		t.Fatalf("looked at %v, want %s", paths, archive)
	}
	inside := &kserve.ModelConfig{Backend: "fake", Parameters: map[string]*kserve.ModelParameter{
		"EXECUTION_ENV_PATH": {StringValue: "$$TRITON_MODEL_DIRECTORY/env.tar.gz"}}}
	if _, files, err := opened.Read(id, inside); err != nil || len(files.Paths()) != 0 {
		t.Errorf("an archive in the model's directory: looked at %v, error %v, want nothing beside the directory", files.Paths(), err)
	}
	long := time.Now().Add(-1000 * time.Hour)
	for _, c := range []struct {
		name    string
		change  func() error
		changes bool
	}{
		{"nothing", func() error { return nil }, false},
		{"something beside it", func() error { return write(second, "other") }, false},
		{"its time", func() error { return os.Chtimes(archive, long, long) }, true},
		{"its content", func() error { return write(archive, "two") }, true},
		{"a link in its place", func() error { return link(second) }, true},
		{"the target of the link", func() error { return write(second, "third") }, true},
		{"another target", func() error { return link("d") }, true},
		{"what is in a directory", func() error { return write(filepath.Join(root, "d", "new"), "") }, false},
		{"it is gone", func() error { return os.Remove(archive) }, true},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		after, err := opened.Footprint(id, before.Paths()...)
		if err != nil {
			t.Fatal(err)
		}
		if same, one := before.Same(after), before.SameFor(after, 1); same == c.changes || one == c.changes {
			t.Errorf("%s: the same: %v, for version 1: %v, want %v", c.name, same, one, !c.changes)
		}
		before = after
	}
	if unasked, err := opened.Footprint(id); err != nil || before.Same(unasked) {
		t.Errorf("a look that was not told of the archive counts as if it had seen it (error %v)", err)
	}
}
