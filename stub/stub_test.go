package stub

import (
	"io/fs"
	"os"
	"path"
	"testing"
)

// TestFilesAreComplete compares what is embedded with what lies here: a file
// whose name embedding leaves out would be missed by a user's interpreter only.
func TestFilesAreComplete(t *testing.T) {
	for _, dir := range []string{"nereid_template", "pb_stub", "triton_python_backend_stub"} {
		here, err := fs.Glob(os.DirFS("."), dir+"/*.py")
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
			got, err := Files.ReadFile(name)
			if err != nil || string(got) != string(want) {
				t.Errorf("%s: embedded are %d bytes (error %v), want %d", name, len(got), err, len(want))
			}
		}
	}
	err := fs.WalkDir(Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) != ".py" {
			t.Errorf("embedded is %s, want Python files only", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
