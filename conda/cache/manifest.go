package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// manifest lists the files of an environment, sorted by path. It detects damage, not malice: this
// user can change both.
type manifest struct {
	files []file
	bytes int64 // on disk, about; each inode once
}

// file is a file, a directory or a symbolic link of an environment.
type file struct {
	path   string // from the environment, with slashes
	kind   byte   // 'f', 'd', 'l', or '?' for other kinds, which no new environment has
	mode   fs.FileMode
	size   int64  // of a file
	sum    uint32 // of a file: CRC-32C
	target string // of a link
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// list lists a directory, with sums of its files.
func list(ctx context.Context, log zerolog.Logger, dir string) (*manifest, error) {
	m, err := names(ctx, dir)
	if err != nil {
		return nil, err
	}
	return m, m.sum(ctx, log, dir)
}

// names lists a directory without sums.
func names(ctx context.Context, dir string) (*manifest, error) {
	m := &manifest{}
	seen := make(map[uint64]bool) // inodes with several names
	err := filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if at == dir {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		f := file{path: filepath.ToSlash(name), mode: info.Mode().Perm(), kind: '?'}
		switch info.Mode().Type() {
		case 0:
			f.kind, f.size = 'f', info.Size()
		case fs.ModeDir:
			f.kind = 'd'
		case fs.ModeSymlink:
			f.kind = 'l'
			if f.target, err = os.Readlink(at); err != nil {
				return err
			}
		}
		m.files = append(m.files, f)
		const block = 4 << 10
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && (f.kind != 'f' || stat.Nlink == 1 || !seen[stat.Ino]) {
			m.bytes += (info.Size() + block - 1) / block * block
			seen[stat.Ino] = stat.Nlink > 1
		}
		return nil
	})
	return m, err
}

// sum fills in the sums of files, several at a time.
func (m *manifest) sum(ctx context.Context, log zerolog.Logger, dir string) error {
	workers := min(runtime.GOMAXPROCS(0), 4)
	errs := make(chan error, workers) // each worker sends once
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(panics.Guard(log, panics.Models, func() {
			buffer := make([]byte, 256<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(m.files) {
					errs <- nil
					return
				}
				if m.files[i].kind != 'f' {
					continue
				}
				err := ctx.Err()
				if err == nil {
					m.files[i].sum, err = sumFile(filepath.Join(dir, filepath.FromSlash(m.files[i].path)), buffer)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}, func(err error) { errs <- err }))
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func sumFile(path string, buffer []byte) (uint32, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	sum := uint32(0)
	for {
		n, err := file.Read(buffer)
		sum = crc32.Update(sum, castagnoli, buffer[:n])
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// encode makes the text of a manifest: a line for each file, and their number at the end.
func (m *manifest) encode() []byte {
	var b bytes.Buffer
	for _, f := range m.files {
		fmt.Fprintf(&b, "%c %03o %d %08x %q", f.kind, f.mode, f.size, f.sum, f.path)
		if f.kind == 'l' {
			fmt.Fprintf(&b, " %q", f.target)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "end %d\n", len(m.files))
	return b.Bytes()
}

// errManifest reports that a manifest was damaged.
var errManifest = errors.New("the manifest is damaged")

func decodeManifest(text []byte) (*manifest, error) {
	m := &manifest{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == fmt.Sprintf("end %d", len(m.files)) {
			return m, nil
		}
		fields := strings.SplitN(line, " ", 5)
		if len(fields) != 5 || len(fields[0]) != 1 {
			return nil, errManifest
		}
		f := file{kind: fields[0][0]}
		mode, err1 := strconv.ParseUint(fields[1], 8, 9)
		size, err2 := strconv.ParseInt(fields[2], 10, 64)
		sum, err3 := strconv.ParseUint(fields[3], 16, 32)
		quoted, err4 := strconv.QuotedPrefix(fields[4])
		if errors.Join(err1, err2, err3, err4) != nil {
			return nil, errManifest
		}
		f.mode, f.size, f.sum = fs.FileMode(mode), size, uint32(sum)
		name, err1 := strconv.Unquote(quoted)
		rest := strings.TrimPrefix(fields[4][len(quoted):], " ")
		var err error
		if f.kind == 'l' {
			f.target, err = strconv.Unquote(rest)
		}
		if errors.Join(err, err1) != nil {
			return nil, errManifest
		}
		f.path = name
		m.files = append(m.files, f)
	}
	return nil, errManifest
}

// compare describes in sentences how an environment differs from its original state. Python's
// compiled files come and go.
func (m *manifest) compare(now *manifest, deep bool) (damage []string) {
	there := make(map[string]file, len(now.files))
	for _, f := range now.files {
		there[f.path] = f
	}
	for _, want := range m.files {
		got, ok := there[want.path]
		delete(there, want.path)
		const owner = 0o700 // an operator may open a cache to others
		switch {
		case compiled(want.path):
		case !ok:
			damage = append(damage, want.path+" is missing")
		case got.kind != want.kind:
			damage = append(damage, fmt.Sprintf("%s is a %s, was a %s", want.path, kindText(got.kind), kindText(want.kind)))
		case got.target != want.target:
			damage = append(damage, fmt.Sprintf("%s leads to %s, led to %s", want.path, got.target, want.target))
		case got.size != want.size:
			damage = append(damage, fmt.Sprintf("%s has %d bytes, had %d", want.path, got.size, want.size))
		case want.kind != 'l' && (got.mode^want.mode)&owner != 0:
			damage = append(damage, fmt.Sprintf("%s has mode %04o, had %04o", want.path, got.mode, want.mode))
		case deep && got.sum != want.sum:
			damage = append(damage, want.path+" has other bytes than it was made with")
		}
	}
	for _, got := range now.files {
		if _, extra := there[got.path]; extra && !compiled(got.path) {
			damage = append(damage, got.path+" was added")
		}
	}
	return damage
}

// compiled reports whether Python itself makes and replaces a file.
func compiled(name string) bool {
	return path.Ext(name) == ".pyc" || path.Base(name) == "__pycache__" || path.Base(path.Dir(name)) == "__pycache__"
}

func kindText(kind byte) string {
	switch kind {
	case 'f':
		return "file"
	case 'd':
		return "directory"
	case 'l':
		return "symbolic link"
	}
	return "device or pipe"
}
