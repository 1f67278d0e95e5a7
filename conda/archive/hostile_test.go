package archive_test

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda/archive"
)

// TestHostileEntriesAreRefused checks the error for each hostile entry, and that nothing outside
// changes.
func TestHostileEntriesAreRefused(t *testing.T) {
	const (
		dots      = `archive_write_header() failed with error code = -25 error message is Path contains '..'`
		absolute  = `archive_write_header() failed with error code = -25 error message is Path is absolute`
		through   = `archive_write_header() failed with error code = -25 error message is Cannot extract through symlink `
		packAgain = `, which leads outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`
	)
	device := func(kind byte) archive.Entry {
		return archive.Entry{tar.Header{Typeflag: kind, Name: "dev/x", Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}
	}
	for _, test := range []struct {
		name    string
		entries []archive.Entry
		want    string
	}{
		{"dots", []archive.Entry{archive.Regular("../evil", "x")}, `entry "../evil": ` + dots},
		{"dots within", []archive.Entry{archive.Regular("a/../../evil", "x")}, `entry "a/../../evil": ` + dots},
		{"dots that stay inside", []archive.Entry{archive.Regular("a/../b", "x")}, `entry "a/../b": ` + dots},
		{"dots at the end", []archive.Entry{folder("a/..")}, `entry "a/..": ` + dots},
		{"dots alone", []archive.Entry{folder("../")}, `entry "../": ` + dots},
		{"absolute", []archive.Entry{archive.Regular("/tmp/evil", "x")}, `entry "/tmp/evil": ` + absolute},
		{"absolute with more slashes", []archive.Entry{archive.Regular("//tmp/evil", "x")}, `entry "//tmp/evil": ` + absolute},

		{"symlink to the root", []archive.Entry{symlink("l", "/")}, `entry "l": is a symbolic link to "/", outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`},
		{"python of a venv", []archive.Entry{symlink("bin/python3", "/usr/bin/python3")}, `entry "bin/python3": is a symbolic link to "/usr/bin/python3", outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`},
		{"symlink upwards", []archive.Entry{symlink("l", "..")}, `entry "l": is a symbolic link to ".."` + packAgain},
		{"symlink one too far up", []archive.Entry{symlink("a/b/l", "../../../x")}, `entry "a/b/l": is a symbolic link to "../../../x"` + packAgain},
		{"symlink up behind names", []archive.Entry{symlink("l", "a/../../x")}, `entry "l": is a symbolic link to "a/../../x"` + packAgain},
		{"symlink through a symlink", []archive.Entry{symlink("a/up", ".."), symlink("l", "a/up/../marker")}, `entry "l": is a symbolic link to "a/up/../marker"` + packAgain},
		{"symlink through a later symlink", []archive.Entry{symlink("l", "a/up/../marker"), symlink("a/up", "..")}, `entry "l": is a symbolic link to "a/up/../marker"` + packAgain},
		{"symlink through three", []archive.Entry{symlink("a/b/1", "../.."), symlink("a/2", "b/1/a/b/1"), symlink("l", "a/2/../../marker")}, `entry "l": is a symbolic link to "a/2/../../marker"` + packAgain},
		{"symlink without a target", []archive.Entry{symlink("l", "")}, `entry "l": is a symbolic link without a target`},
		{"symlink with a line break", []archive.Entry{symlink("l", "a\nb")}, `entry "l": the target of the symbolic link has the control character U+000A at byte 1`},

		{"write through a symlink", []archive.Entry{symlink("lnk", "."), archive.Regular("lnk/f", "x")}, `entry "lnk/f": ` + through + `lnk/f`},
		{"write through a symlink below", []archive.Entry{symlink("a/lnk", "b"), folder("a/b"), archive.Regular("a/lnk/c/f", "x")}, `entry "a/lnk/c/f": ` + through + `a/lnk/c/f`},
		{"directory through a symlink", []archive.Entry{symlink("lnk", "."), folder("lnk/")}, `entry "lnk/": ` + through + `lnk`},
		{"symlink in a symlink", []archive.Entry{symlink("lnk", "."), symlink("lnk/l", "x")}, `entry "lnk/l": ` + through + `lnk/l`},

		{"hard link with dots", []archive.Entry{hardLink("h", "../marker")}, `entry "h": is a hard link to "../marker": ` + dots},
		{"absolute hard link", []archive.Entry{hardLink("h", "/etc/passwd")}, `entry "h": is a hard link to "/etc/passwd": ` + absolute},
		{"hard link through a symlink", []archive.Entry{archive.Regular("a/f", "x"), symlink("lnk", "a"), hardLink("h", "lnk/f")}, `entry "h": ` + through + `lnk/f`},
		{"hard link to nothing", []archive.Entry{hardLink("h", "a/f")}, `entry "h": is a hard link to "a/f", which no earlier entry has created`},
		{"hard link to what comes later", []archive.Entry{hardLink("h", "f"), archive.Regular("f", "x")}, `entry "h": is a hard link to "f", which no earlier entry has created`},
		{"hard link to a directory", []archive.Entry{folder("d"), hardLink("h", "d")}, `entry "h": is a hard link to the directory "d"`},
		{"hard link to itself", []archive.Entry{archive.Regular("f", "x"), hardLink("f", "./f")}, `entry "f": is a hard link to itself`},
		{"hard link to the directory itself", []archive.Entry{hardLink("f", ".")}, `entry "f": is a hard link to the directory itself`},
		{"hard link that moves a symlink out", []archive.Entry{symlink("a/b/l", "../.."), hardLink("l", "a/b/l")}, `entry "l": is a symbolic link to "../.."` + packAgain},

		{"character device", []archive.Entry{device(tar.TypeChar)}, `entry "dev/x": is a device; environments only have files, directories and links`},
		{"block device", []archive.Entry{device(tar.TypeBlock)}, `entry "dev/x": is a device; environments only have files, directories and links`},
		{"fifo", []archive.Entry{device(tar.TypeFifo)}, `entry "dev/x": is a fifo; environments only have files, directories and links`},
		{"unknown kind", []archive.Entry{device('Z')}, `entry "dev/x": is an entry of the unknown kind 'Z'; environments only have files, directories and links`},

		{"line break", []archive.Entry{archive.Regular("a\nb", "x")}, `entry "a\nb": its name has the control character U+000A at byte 1`},
		{"escape", []archive.Entry{archive.Regular("a\x1b[2Jb", "x")}, `entry "a\x1b[2Jb": its name has the control character U+001B at byte 1`},
		{"control of C1", []archive.Entry{archive.Regular("a\u009bb", "x")}, `entry "a\u009bb": its name has the control character U+009B at byte 1`},
		{"long component", []archive.Entry{archive.Regular(strings.Repeat("n", 256), "x")}, `entry "` + strings.Repeat("n", 256) + `": a component of its name has 256 bytes, at most 255 are possible`},
		{"long name", []archive.Entry{archive.Regular(strings.Repeat("123456789/", 308)+"f", "x")}, `entry "` + strings.Repeat("123456789/", 51) + `12…": its name has 3081 bytes, at most 3072 are possible`},
		{"deep", []archive.Entry{archive.Regular(strings.Repeat("d/", 64)+"f", "x")}, `entry "` + strings.Repeat("d/", 64) + `f": its name has 65 components, the limit of the depth is 64`},
		{"file of no name", []archive.Entry{archive.Regular("./.", "x")}, `entry "./.": its name is that of the directory itself`},

		{"file in a file", []archive.Entry{archive.Regular("f", "x"), archive.Regular("f/g", "y")}, `entry "f/g": "f", in which it would lie, is a file`},
		{"directory over a file", []archive.Entry{archive.Regular("f", "x"), folder("f/")}, `entry "f/": "f", in which it would lie, is a file`},
		{"file over a directory", []archive.Entry{archive.Regular("d/f", "x"), archive.Regular("d", "y")}, `entry "d": an earlier entry has created a directory of this name`},
		{"link over a directory", []archive.Entry{folder("d"), symlink("d", "e")}, `entry "d": an earlier entry has created a directory of this name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Many valid entries come first, so that the writers are busy.
			entries := []archive.Entry{}
			for i := range 40 {
				entries = append(entries, archive.Regular(fmt.Sprintf("good/%d", i), strings.Repeat("content", 1000)))
			}
			for _, data := range [][]byte{archive.Pack(t, test.entries...), archive.Pack(t, slices.Concat(entries, test.entries)...)} {
				p := archive.NewDestination(t)
				err := p.Unpack(t, gzipped(t, data), archive.Options{})
				archive.WantError(t, err, test.want)
			}
		})
	}
}

// TestOddEntriesAreMade unpacks unusual but harmless entries.
func TestOddEntriesAreMade(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []archive.Entry
		want    []string
	}{
		{"the directory itself", []archive.Entry{folder("./"), archive.Regular("./a", "x")}, []string{"a = x"}},
		{"needless dots and slashes", []archive.Entry{archive.Regular("./a//b/./c", "x")}, []string{"a directory", "a/b directory", "a/b/c = x"}},
		{"two files of a name", []archive.Entry{archive.Regular("a", "longer"), archive.Regular("a", "x")}, []string{"a = x"}},
		{"file over a symlink", []archive.Entry{archive.Regular("a", "x"), symlink("b", "a"), archive.Regular("b", "y")}, []string{"a = x", "b = y"}},
		{"symlink over a file", []archive.Entry{archive.Regular("a", "x"), symlink("a", "b")}, []string{"a -> b"}},
		{"hard link over a file", []archive.Entry{archive.Regular("a", "x"), archive.Regular("b", "y"), hardLink("b", "a")}, []string{"a = x", "b = x"}},
		{"file over a hard link", []archive.Entry{archive.Regular("a", "x"), hardLink("b", "a"), archive.Regular("b", "y")}, []string{"a = x", "b = y"}},
		{"two directories of a name", []archive.Entry{folder("a"), archive.Regular("a/b", "x"), folder("a/")}, []string{"a directory", "a/b = x"}},
		{"hard link to a symlink", []archive.Entry{symlink("a/l", "x"), hardLink("m", "a/l")}, []string{"a directory", "a/l -> x", "m -> x"}},
		{"symlink in a circle", []archive.Entry{symlink("a", "b"), symlink("b", "a/../b")}, []string{"a -> b", "b -> a/../b"}},
		{"symlink up behind a directory", []archive.Entry{symlink("l", "a/../b"), archive.Regular("a/x", ""), archive.Regular("b", "y")}, []string{"a directory", "a/x = ", "b = y", "l -> a/../b"}},
		{"symlink to the directory itself", []archive.Entry{symlink("a/l", "..")}, []string{"a directory", "a/l -> .."}},
		{"symlink to nothing", []archive.Entry{symlink("a", "missing/file")}, []string{"a -> missing/file"}},
		{"upward symlink replaced by a file", []archive.Entry{symlink("a/up", ".."), symlink("l", "a/up/../x"), archive.Regular("l", "y")}, []string{"a directory", "a/up -> ..", "l = y"}},
		{"names that differ in case", []archive.Entry{archive.Regular("E", "1"), archive.Regular("e", "2"), folder("D"), folder("d")}, []string{"D directory", "E = 1", "d directory", "e = 2"}},
		{"names that are no UTF-8", []archive.Entry{{tar.Header{Format: tar.FormatGNU, Typeflag: tar.TypeReg, Name: "caf\xe9"}, "x"}}, []string{"caf\xe9 = x"}},
		{"a deep name", []archive.Entry{archive.Regular(strings.Repeat("d/", 40)+"f", "x"), hardLink("g", strings.Repeat("d/", 40)+"f")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := archive.NewDestination(t)
			if err := p.Unpack(t, archive.Pack(t, test.entries...), archive.Options{}); err != nil {
				t.Fatal(err)
			}
			if got := p.List(t); test.want != nil && !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestDangerousModesAreMasked(t *testing.T) {
	p := archive.NewDestination(t)
	entries := []archive.Entry{
		archive.Regular("setuid", "x").WithMode(0o6777), archive.Regular("none", "x").WithMode(0), folder("sticky").WithMode(0o1777), folder("closed").WithMode(0),
		archive.Regular("closed/f", "x"),
	}
	if err := p.Unpack(t, archive.Pack(t, entries...), archive.Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		"setuid": 0o755, "none": 0o600, "sticky": os.ModeDir | 0o755, "closed": os.ModeDir | 0o700,
	} {
		info, err := os.Lstat(filepath.Join(p.Inside, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: got mode %v and error %v, want %v", name, info.Mode(), err, want)
		}
	}
}

func TestLimits(t *testing.T) {
	entries := []archive.Entry{archive.Regular("a/b/1", "12345"), archive.Regular("a/b/2", "12345")}
	for _, test := range []struct {
		limits archive.Limits
		want   string
	}{
		{archive.Limits{Files: 4, Bytes: 10, Depth: 3}, ""},
		{archive.Limits{Files: 3}, `entry "a/b/2": the archive has more than 3 entries and directories; raise the limit if you trust it`},
		{archive.Limits{Files: 1}, `entry "a/b/1": the archive has more than 1 entries and directories; raise the limit if you trust it`},
		{archive.Limits{Bytes: 9}, `entry "a/b/2": has 5 bytes, but only 4 of the limit of 9 for all files are left; raise the limit if you trust the archive`},
		{archive.Limits{Depth: 2}, `entry "a/b/1": its name has 3 components, the limit of the depth is 2`},
	} {
		err := archive.NewDestination(t).Unpack(t, archive.Pack(t, entries...), archive.Options{Limits: test.limits})
		if test.want == "" && err != nil {
			t.Errorf("%+v: got error %v, want none", test.limits, err)
		} else if test.want != "" {
			archive.WantError(t, err, test.want)
		}
	}
	if err := archive.NewDestination(t).Unpack(t, nil, archive.Options{Limits: archive.Limits{Ratio: -1}}); err == nil || err.Error() != "limit Ratio is -1, want a positive number, or 0 for its default" {
		t.Errorf("a negative limit: got error %v", err)
	}
}
