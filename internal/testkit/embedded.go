package testkit

import (
	"embed"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// EmbedsPython compares the embedded Python files with those in the directories below the working
// directory: only a user's interpreter would miss a file that embedding leaves out.
func EmbedsPython(t *testing.T, files embed.FS, directories ...string) {
	t.Helper()
	for _, dir := range directories {
		here, err := fs.Glob(os.DirFS("."), path.Join(dir, "*.py"))
		if err != nil {
			t.Fatal(err)
		}
		if len(here) == 0 {
			t.Errorf("%s: found no Python files", dir)
		}
		for _, name := range here {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := files.ReadFile(name)
			if err != nil || string(got) != string(want) {
				t.Errorf("%s: embedded are %d bytes (error %v), want %d", name, len(got), err, len(want))
			}
		}
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) != ".py" && !strings.HasPrefix(path.Base(name), "_accelerator") {
			t.Errorf("embedded is %s, want Python files and the accelerator only", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
