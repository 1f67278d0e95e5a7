package repository_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

// contents returns files of these names. The content of each is the last element of its name in
// capitals.
func contents(names ...string) map[string][]byte {
	files := make(map[string][]byte)
	for _, name := range names {
		files[name] = []byte(strings.ToUpper(path.Base(name)))
	}
	return files
}

// destinationOf returns the directory with the copies of the test's server.
func destinationOf(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "nereid-models-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("got the places %q, %v, want one", found, err)
	}
	return found[0]
}

const mostEntries = 16384

func TestUploadsAreWritten(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := repository.NewUploads(zerolog.Nop(), mostEntries)
	const config = `config.pbtxt 600 "C"`
	for _, test := range []struct {
		files []string
		want  string
	}{
		{[]string{"1/m"}, `1/ 700; 1/m 600 "M"; ` + config},
		{[]string{"1/m", "1/a/b/c", "top"}, `1/ 700; 1/a/ 700; 1/a/b/ 700; 1/a/b/c 600 "C"; 1/m 600 "M"; ` + config + `; top 600 "TOP"`},
		{[]string{"/1/m", "//etc/x"}, `1/ 700; 1/m 600 "M"; ` + config + `; etc/ 700; etc/x 600 "X"`},
		{[]string{"1/../2/./m", "x//y"}, `2/ 700; 2/m 600 "M"; ` + config + `; x/ 700; x/y 600 "Y"`},
		{[]string{"..a/...", "~"}, `..a/ 700; ..a/... 600 "..."; ` + config + `; ~ 600 "~"`},
		{[]string{"config.pbtxt", `\..\x`, "ü\xff"}, `\..\x 600 "\\..\\X"; ` + config + "; ü\xff 600 " + `"Ü�"`},
	} {
		u, err := s.Write(contents(test.files...), []byte("C"))
		if err != nil {
			t.Errorf("%q: %v", test.files, err)
			continue
		}
		if got := testkit.Tree(t, u.Path()); got != test.want {
			t.Errorf("%q: got %s, want %s", test.files, got, test.want)
		}
		for _, directory := range []string{u.Path(), filepath.Dir(u.Path())} {
			if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%q: got %v, %v, want mode 700", test.files, info, err)
			}
		}
		if err := os.Chmod(filepath.Join(u.Path(), path.Dir(strings.TrimLeft(path.Clean("/"+test.files[0]), "/"))), 0); err != nil {
			t.Error(err)
		}
		u.Drop()
	}
	if left := testkit.Tree(t, destinationOf(t)); left != "" {
		t.Errorf("%s is left", left)
	}
	s.Close()
	if left := testkit.Tree(t, os.TempDir()); left != "" {
		t.Errorf("%s is left", left)
	}
	if _, err := s.Write(contents("1/m"), nil); infer.AsError(err).Status() != "Unavailable: Server exiting" {
		t.Errorf("a write after the end: got %v", err)
	}
}

func TestUploadsHaveAsManyFilesAsTheyMay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := repository.NewUploads(zerolog.Nop(), 3)
	defer s.Close()
	u, err := s.Write(contents("1/a", "1/b"), nil)
	if err != nil {
		t.Fatalf("three: got error %v, want none", err)
	}
	u.Drop()
	const want = "the files of the request need more than 3 files and directories"
	if _, err := s.Write(contents("1/a", "1/b", "c"), nil); err == nil || err.Error() != want {
		t.Errorf("four: got error %v, want %s", err, want)
	}
}

func TestUploadsAreRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := repository.NewUploads(zerolog.Nop(), mostEntries)
	defer s.Close()
	many := make([]string, 0, mostEntries)
	for i := range mostEntries {
		many = append(many, fmt.Sprint("d/", i))
	}
	deep := make([]string, 0, 20)
	for i := range 20 {
		deep = append(deep, strings.Repeat(fmt.Sprintf("%c/", 'a'+i), 1500)+"x")
	}
	const (
		invalid    = "Invalid argument: Invalid file parameter "
		unwritable = "Internal: failed to open binary file for write "
		entries    = "Invalid argument: the files of the request need more than 16384 files and directories"
	)
	out := func(name, path string) string {
		return invalid + "'file:" + name + "' with normalized path '" + path + "' must stay within model directory."
	}
	long := strings.Repeat("a", 300)
	for _, test := range []struct {
		files []string
		want  string // prefix of the error, with DIRECTORY for the upload's directory and PARENT for its parent
	}{
		{[]string{"../x"}, out("../x", "PARENT/x")},
		{[]string{".."}, out("..", "PARENT")},
		{[]string{"../"}, out("../", "PARENT")},
		{[]string{"1/m", "1/../../x"}, out("1/../../x", "PARENT/x")},
		{[]string{"1/m", "/../x"}, out("/../x", "PARENT/x")},
		{[]string{"../../../../../../../../etc/x"}, out("../../../../../../../../etc/x", "/etc/x")},
		{[]string{""}, unwritable + "DIRECTORY/: Is a directory"},
		{[]string{"."}, unwritable + "DIRECTORY/.: Is a directory"},
		{[]string{"1/"}, unwritable + "DIRECTORY/1/: Is a directory"},
		{[]string{"1/a/..", "1/b"}, invalid + "'file:1/b', directory has been created as a file"},
		{[]string{"1", "1/m"}, invalid + "'file:1/m', directory has been created as a file"},
		{[]string{"1", "1/m/n"}, invalid + "'file:1/m/n', directory has been created as a file"},
		{[]string{"1/m", "a/../1"}, unwritable + "DIRECTORY/1: Is a directory"},
		{[]string{"config.pbtxt/x"}, unwritable + "DIRECTORY/config.pbtxt: Is a directory"},
		{[]string{"a\x00b"}, invalid + `"file:a\x00b", a name has no zero byte`},
		{[]string{long}, unwritable + "DIRECTORY/" + long + ": File name too long"},
		{[]string{long + "/x"}, "Internal: failed to create directory DIRECTORY/" + long + ": File name too long"},
		{[]string{strings.Repeat("a/", 2048) + "x"}, invalid + "'file:" + strings.Repeat("a/", 32) + "...', its path has "},
		{many, entries},
		{deep, entries},
	} {
		_, err := s.Write(contents(test.files...), nil)
		if err == nil {
			t.Errorf("%.100q is accepted", test.files)
			continue
		}
		got := infer.AsError(err).Status()
		got = regexp.MustCompile(regexp.QuoteMeta(destinationOf(t))+`/\d+`).ReplaceAllString(got, "DIRECTORY")
		got = strings.ReplaceAll(got, destinationOf(t), "PARENT")
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%.100q: got %s, want %s", test.files, got, test.want)
		}
	}
	if left := testkit.Tree(t, destinationOf(t)); left != "" {
		t.Errorf("%s is left", left)
	}
}

// FuzzTargetPaths checks that no file is placed outside its directory.
func FuzzTargetPaths(f *testing.F) {
	for _, seed := range [][2]string{{"1/m", "../x"}, {"/etc/x", "a/../../b"}, {"a\x00", "."}, {"..", "a//b/./c"}, {"1", "1/"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		places, err := repository.TargetPaths("/d", map[string][]byte{a: nil, b: nil}, mostEntries)
		if err != nil {
			return
		}
		for name, place := range places {
			if !filepath.IsLocal(place) || place == "." || path.Clean(place) != place || !strings.HasPrefix(path.Join("/d", place), "/d/") || strings.Contains(place, "\x00") {
				t.Errorf("%q is placed at %q", name, place)
			}
		}
	})
}
