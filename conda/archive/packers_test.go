package archive_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestArchivesOfTarUnpack unpacks archives by GNU tar in each of its formats, with long names, hard
// links, sparse files and times.
func TestArchivesOfTarUnpack(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar")
	}
	source := t.TempDir()
	long := "lib/python3.12/" + strings.Repeat("a-long-name/", 12) + "module.py"
	sparse := filepath.Join(source, "lib/sparse")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(source, filepath.Dir(long)), 0o755),
		os.WriteFile(filepath.Join(source, long), []byte("pass"), 0o444),
		os.MkdirAll(filepath.Join(source, "bin"), 0o755),
		os.WriteFile(filepath.Join(source, "bin/python3"), []byte("\x7fELF"), 0o755),
		os.Symlink("python3", filepath.Join(source, "bin/python")),
		os.Link(filepath.Join(source, "bin/python3"), filepath.Join(source, "bin/python3.12")),
		os.Mkdir(filepath.Join(source, "empty"), 0o755),
		os.WriteFile(sparse, []byte("begin"), 0o644),
		os.Truncate(sparse, 3<<20),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(sparse, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), 3<<20-3); err != nil {
		t.Fatal(err)
	}
	f.Close()
	content := "begin" + strings.Repeat("\x00", 3<<20-8) + "end"

	for _, options := range [][]string{{"--format=gnu"}, {"--format=gnu", "-S"}, {"--format=pax"}, {"--format=pax", "-S"}, {"--format=oldgnu", "-S"}, {"--format=ustar"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			data, err := exec.Command("tar", append(options, "-C", source, "-cf", "-", ".")...).Output()
			if err != nil {
				t.Fatal(err)
			}
			p := archive.NewDestination(t)
			if err := p.Unpack(t, data, archive.Options{}); err != nil {
				t.Fatal(err)
			}
			want := (&archive.Destination{Inside: source}).List(t)
			if got := p.List(t); !slices.Equal(got, want) {
				t.Errorf("got %.300q, want %.300q", got, want)
			}
			got, err := os.ReadFile(filepath.Join(p.Inside, "lib/sparse"))
			if err != nil || string(got) != content {
				t.Errorf("the sparse file has %d bytes (error %v), want the %d it had", len(got), err, len(content))
			}
			a, err := os.Stat(filepath.Join(p.Inside, "bin/python3"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.Stat(filepath.Join(p.Inside, "bin/python3.12"))
			if err != nil || !os.SameFile(a, b) {
				t.Errorf("the hard link is another file (error %v)", err)
			}
		})
	}
}

// TestHostileArchivesOfPython unpacks archives by Python's tarfile, with names and entry types that
// Go does not write.
func TestHostileArchivesOfPython(t *testing.T) {
	const program = `
import io, sys, tarfile

def entry(name, kind=tarfile.REGTYPE, link="", content=b"", mode=0o644, **more):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(content), mode
    for key, value in more.items():
        setattr(info, key, value)
    return info, io.BytesIO(content)

cases = {
    "relative": [entry("../evil", content=b"x")],
    "absolute": [entry("/tmp/evil", content=b"x")],
    "pax path": [entry("fine", content=b"x", pax_headers={"path": "../../evil"})],
    "pax link": [entry("fine", tarfile.SYMTYPE, "ok", pax_headers={"linkpath": "/etc/passwd"})],
    "long name": [entry("n/" * 600 + "x", content=b"x")],
    "device": [entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "link and through": [entry("l", tarfile.SYMTYPE, "."), entry("l/x", content=b"x")],
    "twice": [entry("x", content=b"1"), entry("x", content=b"22")],
    "set-uid": [entry("x", content=b"1", mode=0o4755)],
    "pax size": [entry("x", content=b"", pax_headers={"size": "99999999999999"})],
    "no size": [entry("x", content=b"", pax_headers={"size": "-1"})],
    "time": [entry("x", content=b"1", mtime=1e15)],
    "time before": [entry("x", content=b"1", mtime=-1e9)],
}
out = io.BytesIO()
with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
    for info, content in cases[sys.argv[1]]:
        tar.addfile(info, content)
sys.stdout.buffer.write(out.getvalue())
`
	python := testkit.Python(t).Path
	for name, want := range map[string]string{
		"relative":         `entry "../evil": archive_write_header() failed with error code = -25 error message is Path contains '..'`,
		"absolute":         `entry "/tmp/evil": archive_write_header() failed with error code = -25 error message is Path is absolute`,
		"pax path":         `entry "../../evil": archive_write_header() failed with error code = -25 error message is Path contains '..'`,
		"pax link":         `entry "fine": is a symbolic link to "/etc/passwd", outside the archive; pack the environment with conda-pack, or name its directory instead of an archive`,
		"long name":        `entry "` + strings.Repeat("n/", 256) + `…": its name has 601 components, the limit of the depth is 64`,
		"device":           `entry "null": is a device; environments only have files, directories and links`,
		"link and through": `entry "l/x": archive_write_header() failed with error code = -25 error message is Cannot extract through symlink l/x`,
		"twice":            "",
		"set-uid":          "",
		"pax size":         `entry "x": has 99999999999999 bytes, but only 68719476736 of the limit of 68719476736 for all files are left; raise the limit if you trust the archive`,
		"no size":          `archive_read_next_header() failed with error code = -30 error message is the archive is damaged before its first entry: archive/tar: invalid tar header`,
		"time":             "",
		"time before":      "",
	} {
		t.Run(name, func(t *testing.T) {
			var complaints bytes.Buffer
			pack := exec.Command(python, "-c", program, name)
			pack.Stderr = &complaints
			data, err := pack.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &complaints)
			}
			p := archive.NewDestination(t)
			err = p.Unpack(t, data, archive.Options{})
			if want == "" && err != nil {
				t.Errorf("got error %v, want none", err)
			} else if want != "" {
				archive.WantError(t, err, want)
			}
		})
	}
}

// FuzzUnpack unpacks arbitrary bytes. Nothing panics, nothing outside changes, and no unpacked link
// leads outside.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]archive.Entry{
		{archive.Regular("a/b", "content"), folder("d/"), symlink("a/l", "../d"), hardLink("h", "a/b")},
		{symlink("l", "a/up/../x"), symlink("a/up", ".."), archive.Regular("../x", "")},
		{archive.Regular(strings.Repeat("long/", 40)+"f", "").WithMode(0o777)},
	} {
		data := archive.Pack(f, entries...)
		f.Add(data)
		f.Add(gzipped(f, data))
		f.Add(zstandard(f, data))
	}
	// One byte, compressed by bzip2 and by xz.
	for _, name := range []string{"testdata/one.tar.bz2", "testdata/one.tar.xz"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := archive.NewDestination(t)
		limits := archive.Limits{Files: 1000, Bytes: 1 << 20}
		err := p.Unpack(t, data, archive.Options{Limits: limits})
		p.LinksStayInside(t, 0, err != nil)
	})
}
