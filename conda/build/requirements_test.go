package build

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestFindTakesTheMostExactFile(t *testing.T) {
	for _, c := range []struct {
		name    string
		present []string
		tool    tool
		files   []string
	}{
		{"nothing", nil, "", nil},
		{"model alone", []string{"1/model.py", "config.pbtxt"}, "", nil},
		{"requirements", []string{"requirements.txt"}, uvPip, []string{"requirements.txt"}},
		{"project without a lock", []string{"pyproject.toml"}, "", nil},
		{"project without a lock beside requirements", []string{"pyproject.toml", "requirements.txt"}, uvPip, []string{"requirements.txt"}},
		{"lock", []string{"pyproject.toml", "uv.lock", "requirements.txt"}, uvSync, []string{"pyproject.toml", "uv.lock"}},
		{"lock without its project", []string{"uv.lock"}, "", nil},
		{"version", []string{"requirements.txt", ".python-version"}, uvPip, []string{"requirements.txt", ".python-version"}},
		{"pixi", []string{"pixi.toml", "pyproject.toml", "uv.lock", ".python-version"}, pixi, []string{"pixi.toml"}},
		{"pixi with a lock", []string{"pixi.toml", "pixi.lock"}, pixi, []string{"pixi.toml", "pixi.lock"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{}
			for _, name := range c.present {
				files[name] = "3.12\n"
			}
			testkit.WriteFiles(t, root, files)
			r, err := find(root)
			switch {
			case err != nil:
				t.Fatal(err)
			case r == nil:
				if c.tool != "" {
					t.Errorf("got no requirements, want %s", c.tool)
				}
			case r.tool != c.tool || !slices.Equal(r.files, c.files) || r.digest == "":
				t.Errorf("got %s of %v, want %s of %v", r.tool, r.files, c.tool, c.files)
			case slices.Contains(c.files, ".python-version") != (r.version == "3.12"):
				t.Errorf("got version %q", r.version)
			}
		})
	}
}

// TestDigestChangesWithTheInstalledPackages makes one change at a time and checks whether the
// digest changes.
func TestDigestChangesWithTheInstalledPackages(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"requirements.txt": "-r more/base.txt # the rest\nnumpy>=1.2\n./wheels/x.whl\n--find-links=wheels\n",
		"more/base.txt":    "--constraint=../limits.txt\nrequests==2.0\n-c limits.txt\n",
		"limits.txt":       "idna<4\n",
		"more/limits.txt":  "",
		"wheels/x.whl":     "wheel",
		"1/model.py":       "",
	})
	digest := func() string {
		t.Helper()
		r, err := find(root)
		if err != nil {
			t.Fatal(err)
		}
		return r.digest
	}
	r, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"requirements.txt", "more/base.txt", "limits.txt", "more/limits.txt"}; !slices.Equal(r.files, want) {
		t.Errorf("got files %v, want %v", r.files, want)
	}
	last := digest()
	change := func(name, content string) {
		t.Helper()
		testkit.WriteFiles(t, root, map[string]string{name: content})
	}
	for _, c := range []struct {
		name    string
		change  func()
		changes bool
	}{
		{"nothing", func() {}, false},
		{"the model", func() { change("1/model.py", "print()") }, false},
		{"the time of the requirements", func() { _ = os.Chtimes(root+"/requirements.txt", time.Now(), time.Unix(1, 0)) }, false},
		{"an included file", func() { change("more/base.txt", "requests==2.1\n-c ../limits.txt\n-c limits.txt\n") }, true},
		{"a constraint", func() { change("limits.txt", "idna<5\n") }, true},
		{"a wheel", func() { change("wheels/x.whl", "another wheel") }, true},
		{"one more wheel", func() { change("wheels/y.whl", "") }, true},
		{"a version", func() { change(".python-version", "3.11") }, true},
	} {
		c.change()
		now := digest()
		if (now != last) != c.changes {
			t.Errorf("%s: the digest changes: got %v, want %v", c.name, now != last, c.changes)
		}
		last = now
	}
}

func TestFindRejectsUnstorableRequirements(t *testing.T) {
	outside := testkit.WriteFiles(t, t.TempDir(), map[string]string{"secret.txt": "x"})
	for _, c := range []struct{ name, text, want string }{
		{"editable", "numpy\n-e ./src\n", "no editable packages"},
		{"editable, attached", "-e.\n", "no editable packages"},
		{"editable, long", "--editable=.\n", "no editable packages"},
		{"outside", "-r ../other.txt\n", "outside of the model directory"},
		{"absolute", "-c /etc/passwd\n", "outside of the model directory"},
		{"missing", "-r absent.txt\n", "absent.txt"},
		{"link to the outside", "-r link.txt\n", "link.txt"},
		{"a directory", "-r folder\n", "want a file"},
		{"large", strings.Repeat("numpy\n", maxRequirements/6+1), "want a file of at most 8388608"},
		{"a long line", "numpy \\\n" + strings.Repeat(" --hash=sha256:0123456789abcdef \\\n", maxLine/32), "requirements.txt has a line of more than 1048576 bytes"},
		{"many includes", manyIncludes(), "includes more than 100 files"},
		{"a long include", "-r ../" + strings.Repeat("x", 100_000) + "\n", "outside of the model directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"requirements.txt": c.text, "folder/": ""})
			if err := os.Symlink(outside+"/secret.txt", root+"/link.txt"); err != nil {
				t.Fatal(err)
			}
			if r, err := find(root); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("got %+v, %.2000v, want a short error with %q", r, err, c.want)
			}
		})
	}
}

func manyIncludes() string {
	var text strings.Builder
	for i := range maxIncludes + 1 {
		fmt.Fprintf(&text, "-r %d.txt\n", i)
	}
	return text.String()
}

// TestAVersionIsShort checks that a .python-version is read as one.
func TestAVersionIsShort(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"requirements.txt": "", ".python-version": strings.Repeat("3", maxVersion+1)})
	if r, err := find(root); err == nil || !strings.Contains(err.Error(), "want a file of at most 1024") {
		t.Errorf("got %+v, %v, want that the version is too long", r, err)
	}
}

// TestLongWordsAreNoFiles checks that hashes and other words are not looked for when no file can
// have their names.
func TestLongWordsAreNoFiles(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"requirements.txt": "numpy --hash=sha256:" + strings.Repeat("0", 10_000) + "\n"})
	if r, err := find(root); err != nil || r.digest == "" {
		t.Errorf("got %+v, %v, want a digest", r, err)
	}
}

// TestIncludesInACircleEnd checks two files that include each other.
func TestIncludesInACircleEnd(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"requirements.txt": "-r a.txt\n", "a.txt": "-r requirements.txt\n-r a.txt\n"})
	if r, err := find(root); err != nil || len(r.files) != 2 {
		t.Errorf("got %+v, %v, want two files", r, err)
	}
}
