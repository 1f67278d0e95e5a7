package cache

import (
	"bufio"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// manifest lists the files of an environment. It detects damage, not malice: this user can change
// both. Only Verify has the list of a whole environment: an archive may have a million long names.
type manifest struct {
	files []file
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

// batchFiles is the number of files that walk holds.
const batchFiles = 1024

// writeManifest writes the manifest of an environment, and returns the number of its files and
// their bytes on disk.
func writeManifest(ctx context.Context, log zerolog.Logger, dir string, to io.Writer) (files, bytes int64, err error) {
	out := bufio.NewWriter(to)
	bytes, err = walk(ctx, dir, func(batch []file) error {
		files += int64(len(batch))
		if err := sum(ctx, log, dir, batch); err != nil {
			return err
		}
		encode(out, batch)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	encodeEnd(out, files)
	return files, bytes, out.Flush()
}

// list lists a directory for a comparison, sorted by path. With deep it has sums of the files.
func list(ctx context.Context, log zerolog.Logger, dir string, deep bool) (*manifest, error) {
	m := &manifest{}
	_, err := walk(ctx, dir, func(batch []file) error {
		if deep {
			if err := sum(ctx, log, dir, batch); err != nil {
				return err
			}
		}
		m.files = append(m.files, batch...) // bound: an environment, as its operator has asked for it
		return nil
	})
	m.sort()
	return m, err
}

func (m *manifest) sort() {
	slices.SortFunc(m.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
}

// walk passes the files of a directory to each, batchFiles at a time, in no order, and returns
// their bytes on disk, about; each inode counts once.
func walk(ctx context.Context, dir string, each func([]file) error) (bytes int64, err error) {
	w := &walker{ctx: ctx, dir: dir, each: each, todo: []string{"."}, seen: make(map[uint64]bool)}
	for len(w.todo) > 0 {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.list(next); err != nil {
			return 0, err
		}
	}
	return w.bytes, each(w.batch)
}

// walker is one walk.
type walker struct {
	ctx   context.Context // of the walk
	dir   string
	each  func([]file) error
	batch []file          // bound: batchFiles
	todo  []string        // directories to list. bound: the names of directories that an archive may have
	seen  map[uint64]bool // inodes with several names. bound: the files that an archive may have
	bytes int64
}

// list adds the entries of a directory.
func (w *walker) list(parent string) error {
	in, err := os.Open(filepath.Join(w.dir, filepath.FromSlash(parent)))
	if err != nil {
		return err
	}
	defer in.Close()
	for {
		entries, err := in.ReadDir(batchFiles)
		for _, entry := range entries {
			if err := w.add(path.Join(parent, entry.Name()), entry); err != nil { // bound: a path
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add adds one file.
func (w *walker) add(name string, entry fs.DirEntry) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	f := file{path: name, mode: info.Mode().Perm(), kind: '?'}
	switch info.Mode().Type() {
	case 0:
		f.kind, f.size = 'f', info.Size()
	case fs.ModeDir:
		f.kind = 'd'
		w.todo = append(w.todo, name)
	case fs.ModeSymlink:
		f.kind = 'l'
		if f.target, err = os.Readlink(filepath.Join(w.dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	several := ok && f.kind == 'f' && stat.Nlink > 1
	if !several || !w.seen[stat.Ino] {
		const block = 4 << 10
		w.bytes += (info.Size() + block - 1) / block * block
	}
	if several {
		w.seen[stat.Ino] = true
	}
	if len(w.batch) == batchFiles {
		if err := w.each(w.batch); err != nil {
			return err
		}
		w.batch = w.batch[:0]
	}
	w.batch = append(w.batch, f)
	return nil
}

// sum fills in the sums of files, several at a time.
func sum(ctx context.Context, log zerolog.Logger, dir string, files []file) error {
	workers := min(runtime.GOMAXPROCS(0), 4)
	errs := make(chan error, workers) // each worker sends once
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(panics.Guard(log, panics.Models, func() {
			buffer := make([]byte, 256<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					errs <- nil
					return
				}
				if files[i].kind != 'f' {
					continue
				}
				err := ctx.Err()
				if err == nil {
					files[i].sum, err = sumFile(filepath.Join(dir, filepath.FromSlash(files[i].path)), buffer)
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

// encode writes a line for each file. The writer keeps its first error.
func encode(to *bufio.Writer, files []file) {
	for _, f := range files {
		fmt.Fprintf(to, "%c %03o %d %08x %q", f.kind, f.mode, f.size, f.sum, f.path)
		if f.kind == 'l' {
			fmt.Fprintf(to, " %q", f.target)
		}
		fmt.Fprintln(to)
	}
}

// encodeEnd writes the last line, the number of all files.
func encodeEnd(to *bufio.Writer, files int64) { fmt.Fprintf(to, "end %d\n", files) }

// errManifest reports that a manifest was damaged.
var errManifest = errors.New("the manifest is damaged")

// bound: a manifest, which only Verify reads, as its operator has asked for it
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
//
// bound: an environment, as its operator has asked for it
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
			damage = append(damage, want.path+" has different content")
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
