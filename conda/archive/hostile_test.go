package archive

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHostileEntriesAreRefused with a sentence, and nothing outside changes.
func TestHostileEntriesAreRefused(t *testing.T) {
	const (
		dots      = `archive_write_header() failed with error code = -25 error message is Path contains '..'`
		absolute  = `archive_write_header() failed with error code = -25 error message is Path is absolute`
		through   = `archive_write_header() failed with error code = -25 error message is Cannot extract through symlink `
		packAgain = `, which leads outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`
	)
	device := func(kind byte) entry {
		return entry{tar.Header{Typeflag: kind, Name: "dev/x", Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}
	}
	for _, test := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"dots", []entry{regular("../evil", "x")}, `entry "../evil": ` + dots},
		{"dots within", []entry{regular("a/../../evil", "x")}, `entry "a/../../evil": ` + dots},
		{"dots that stay inside", []entry{regular("a/../b", "x")}, `entry "a/../b": ` + dots},
		{"dots at the end", []entry{folder("a/..")}, `entry "a/..": ` + dots},
		{"dots alone", []entry{folder("../")}, `entry "../": ` + dots},
		{"absolute", []entry{regular("/tmp/evil", "x")}, `entry "/tmp/evil": ` + absolute},
		{"absolute with more slashes", []entry{regular("//tmp/evil", "x")}, `entry "//tmp/evil": ` + absolute},

		{"symlink to the root", []entry{symlink("l", "/")}, `entry "l": is a symbolic link to "/", outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`},
		{"python of a venv", []entry{symlink("bin/python3", "/usr/bin/python3")}, `entry "bin/python3": is a symbolic link to "/usr/bin/python3", outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`},
		{"symlink upwards", []entry{symlink("l", "..")}, `entry "l": is a symbolic link to ".."` + packAgain},
		{"symlink one too far up", []entry{symlink("a/b/l", "../../../x")}, `entry "a/b/l": is a symbolic link to "../../../x"` + packAgain},
		{"symlink up behind names", []entry{symlink("l", "a/../../x")}, `entry "l": is a symbolic link to "a/../../x"` + packAgain},
		{"symlink through a symlink", []entry{symlink("a/up", ".."), symlink("l", "a/up/../marker")}, `entry "l": is a symbolic link to "a/up/../marker"` + packAgain},
		{"symlink through a later symlink", []entry{symlink("l", "a/up/../marker"), symlink("a/up", "..")}, `entry "l": is a symbolic link to "a/up/../marker"` + packAgain},
		{"symlink through three", []entry{symlink("a/b/1", "../.."), symlink("a/2", "b/1/a/b/1"), symlink("l", "a/2/../../marker")}, `entry "l": is a symbolic link to "a/2/../../marker"` + packAgain},
		{"symlink without a target", []entry{symlink("l", "")}, `entry "l": is a symbolic link without a target`},
		{"symlink with a line break", []entry{symlink("l", "a\nb")}, `entry "l": the target of the symbolic link has the control character U+000A at byte 1`},

		{"write through a symlink", []entry{symlink("lnk", "."), regular("lnk/f", "x")}, `entry "lnk/f": ` + through + `lnk/f`},
		{"write through a symlink below", []entry{symlink("a/lnk", "b"), folder("a/b"), regular("a/lnk/c/f", "x")}, `entry "a/lnk/c/f": ` + through + `a/lnk/c/f`},
		{"directory through a symlink", []entry{symlink("lnk", "."), folder("lnk/")}, `entry "lnk/": ` + through + `lnk`},
		{"symlink in a symlink", []entry{symlink("lnk", "."), symlink("lnk/l", "x")}, `entry "lnk/l": ` + through + `lnk/l`},

		{"hard link with dots", []entry{hardLink("h", "../marker")}, `entry "h": is a hard link to "../marker": ` + dots},
		{"absolute hard link", []entry{hardLink("h", "/etc/passwd")}, `entry "h": is a hard link to "/etc/passwd": ` + absolute},
		{"hard link through a symlink", []entry{regular("a/f", "x"), symlink("lnk", "a"), hardLink("h", "lnk/f")}, `entry "h": ` + through + `lnk/f`},
		{"hard link to nothing", []entry{hardLink("h", "a/f")}, `entry "h": is a hard link to "a/f", which no entry before has made`},
		{"hard link to what comes later", []entry{hardLink("h", "f"), regular("f", "x")}, `entry "h": is a hard link to "f", which no entry before has made`},
		{"hard link to a directory", []entry{folder("d"), hardLink("h", "d")}, `entry "h": is a hard link to the directory "d"`},
		{"hard link to itself", []entry{regular("f", "x"), hardLink("f", "./f")}, `entry "f": is a hard link to itself`},
		{"hard link to the directory itself", []entry{hardLink("f", ".")}, `entry "f": is a hard link to the directory itself`},
		{"hard link that moves a symlink out", []entry{symlink("a/b/l", "../.."), hardLink("l", "a/b/l")}, `entry "l": is a symbolic link to "../.."` + packAgain},

		{"character device", []entry{device(tar.TypeChar)}, `entry "dev/x": is a device; environments have files, directories and links alone`},
		{"block device", []entry{device(tar.TypeBlock)}, `entry "dev/x": is a device; environments have files, directories and links alone`},
		{"fifo", []entry{device(tar.TypeFifo)}, `entry "dev/x": is a fifo; environments have files, directories and links alone`},
		{"unknown kind", []entry{device('Z')}, `entry "dev/x": is an entry of the unknown kind 'Z'; environments have files, directories and links alone`},

		{"line break", []entry{regular("a\nb", "x")}, `entry "a\nb": its name has the control character U+000A at byte 1`},
		{"escape", []entry{regular("a\x1b[2Jb", "x")}, `entry "a\x1b[2Jb": its name has the control character U+001B at byte 1`},
		{"control of C1", []entry{regular("a\u009bb", "x")}, `entry "a\u009bb": its name has the control character U+009B at byte 1`},
		{"long component", []entry{regular(strings.Repeat("n", 256), "x")}, `entry "` + strings.Repeat("n", 256) + `": a component of its name has 256 bytes, at most 255 are possible`},
		{"long name", []entry{regular(strings.Repeat("123456789/", 308)+"f", "x")}, `entry "` + strings.Repeat("123456789/", 51) + `12…": its name has 3081 bytes, at most 3072 can be opened`},
		{"deep", []entry{regular(strings.Repeat("d/", 64)+"f", "x")}, `entry "` + strings.Repeat("d/", 64) + `f": its name has 65 components, the limit of the depth is 64`},
		{"file of no name", []entry{regular("./.", "x")}, `entry "./.": its name is that of the directory itself`},

		{"file in a file", []entry{regular("f", "x"), regular("f/g", "y")}, `entry "f/g": "f", in which it would lie, is a file`},
		{"directory over a file", []entry{regular("f", "x"), folder("f/")}, `entry "f/": "f", in which it would lie, is a file`},
		{"file over a directory", []entry{regular("d/f", "x"), regular("d", "y")}, `entry "d": an entry before has made a directory of this name`},
		{"link over a directory", []entry{folder("d"), symlink("d", "e")}, `entry "d": an entry before has made a directory of this name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The good entries before it are many, so that writers are at work.
			entries := []entry{}
			for i := range 40 {
				entries = append(entries, regular(fmt.Sprintf("good/%d", i), strings.Repeat("content", 1000)))
			}
			for _, data := range [][]byte{pack(t, test.entries...), pack(t, slices.Concat(entries, test.entries)...)} {
				p := newDestination(t)
				_, err := p.unpack(t, gzipped(t, data), Options{})
				wantError(t, err, test.want)
			}
		})
	}
}

// TestOddEntriesAreMade covers unusual and harmless entries.
func TestOddEntriesAreMade(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []entry
		want    []string
	}{
		{"the directory itself", []entry{folder("./"), regular("./a", "x")}, []string{"a = x"}},
		{"needless dots and slashes", []entry{regular("./a//b/./c", "x")}, []string{"a directory", "a/b directory", "a/b/c = x"}},
		{"two files of a name", []entry{regular("a", "longer"), regular("a", "x")}, []string{"a = x"}},
		{"file over a symlink", []entry{regular("a", "x"), symlink("b", "a"), regular("b", "y")}, []string{"a = x", "b = y"}},
		{"symlink over a file", []entry{regular("a", "x"), symlink("a", "b")}, []string{"a -> b"}},
		{"hard link over a file", []entry{regular("a", "x"), regular("b", "y"), hardLink("b", "a")}, []string{"a = x", "b = x"}},
		{"file over a hard link", []entry{regular("a", "x"), hardLink("b", "a"), regular("b", "y")}, []string{"a = x", "b = y"}},
		{"two directories of a name", []entry{folder("a"), regular("a/b", "x"), folder("a/")}, []string{"a directory", "a/b = x"}},
		{"hard link to a symlink", []entry{symlink("a/l", "x"), hardLink("m", "a/l")}, []string{"a directory", "a/l -> x", "m -> x"}},
		{"symlink in a circle", []entry{symlink("a", "b"), symlink("b", "a/../b")}, []string{"a -> b", "b -> a/../b"}},
		{"symlink up behind a directory", []entry{symlink("l", "a/../b"), regular("a/x", ""), regular("b", "y")}, []string{"a directory", "a/x = ", "b = y", "l -> a/../b"}},
		{"symlink to the directory itself", []entry{symlink("a/l", "..")}, []string{"a directory", "a/l -> .."}},
		{"symlink to nothing", []entry{symlink("a", "missing/file")}, []string{"a -> missing/file"}},
		{"upward symlink replaced by a file", []entry{symlink("a/up", ".."), symlink("l", "a/up/../x"), regular("l", "y")}, []string{"a directory", "a/up -> ..", "l = y"}},
		{"names that differ in case", []entry{regular("E", "1"), regular("e", "2"), folder("D"), folder("d")}, []string{"D directory", "E = 1", "d directory", "e = 2"}},
		{"names that are no UTF-8", []entry{{tar.Header{Format: tar.FormatGNU, Typeflag: tar.TypeReg, Name: "caf\xe9"}, "x"}}, []string{"caf\xe9 = x"}},
		{"a deep name", []entry{regular(strings.Repeat("d/", 40)+"f", "x"), hardLink("g", strings.Repeat("d/", 40)+"f")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newDestination(t)
			if _, err := p.unpack(t, pack(t, test.entries...), Options{}); err != nil {
				t.Fatal(err)
			}
			if got := p.list(t); test.want != nil && !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestDangerousModesAreMasked(t *testing.T) {
	p := newDestination(t)
	entries := []entry{
		regular("setuid", "x").mode(0o6777), regular("none", "x").mode(0), folder("sticky").mode(0o1777), folder("closed").mode(0),
		regular("closed/f", "x"),
	}
	if _, err := p.unpack(t, pack(t, entries...), Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		"setuid": 0o755, "none": 0o600, "sticky": os.ModeDir | 0o755, "closed": os.ModeDir | 0o700,
	} {
		info, err := os.Lstat(filepath.Join(p.inside, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: got mode %v and error %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestFoldedNamesAreRefused: where a file system folds case, a name that is there under
// another spelling is found.
func TestFoldedNamesAreRefused(t *testing.T) {
	p := newDestination(t)
	if _, err := p.unpack(t, pack(t, regular("E", "x")), Options{}); err != nil {
		t.Fatal(err)
	}
	tree, err := newTree(p.root, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.exact("E"); err != nil {
		t.Errorf("the same spelling: got error %v, want none", err)
	}
	wantError(t, named("e", tree.exact("e")),
		`entry "e": the archive also has "E", and this file system does not tell case apart; unpack into one that does`)
}

func TestLimits(t *testing.T) {
	entries := []entry{regular("a/b/1", "12345"), regular("a/b/2", "12345")}
	for _, test := range []struct {
		limits Limits
		want   string
	}{
		{Limits{Files: 4, Bytes: 10, Depth: 3}, ""},
		{Limits{Files: 3}, `entry "a/b/2": the archive has more than 3 entries and directories; raise the limit if you trust it`},
		{Limits{Files: 1}, `entry "a/b/1": the archive has more than 1 entries and directories; raise the limit if you trust it`},
		{Limits{Bytes: 9}, `entry "a/b/2": has 5 bytes, but only 4 of the limit of 9 for all files are left; raise the limit if you trust the archive`},
		{Limits{Depth: 2}, `entry "a/b/1": its name has 3 components, the limit of the depth is 2`},
	} {
		_, err := newDestination(t).unpack(t, pack(t, entries...), Options{Limits: test.limits})
		if test.want == "" && err != nil {
			t.Errorf("%+v: got error %v, want none", test.limits, err)
		} else if test.want != "" {
			wantError(t, err, test.want)
		}
	}
	if _, err := newDestination(t).unpack(t, nil, Options{Limits: Limits{Ratio: -1}}); err == nil || err.Error() != "limit Ratio is -1, want a positive number, or 0 for its default" {
		t.Errorf("a negative limit: got error %v", err)
	}
}
