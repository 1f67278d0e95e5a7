package repository

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// maxFileBytes bounds a file that is read whole: a configuration or labels.
const maxFileBytes = 64 << 20

// configFile is the name of a model's configuration file.
const configFile = "config.pbtxt"

// Folder is a model's directory, read only below its root. Files may be links within that root; a
// link that leaves it is refused.
type Folder struct {
	root  *os.Root
	inner string // the directory, relative to root
	path  string // absolute
	shown string // as the operator wrote it, for texts
	owned bool   // root belongs to this folder
	// renamed reports that the model's name differs from its directory and its configuration.
	renamed bool
	// configName makes configs/<configName>.pbtxt the configuration.
	configName string
	// sourcesAlone is Options.SourcesAlone.
	sourcesAlone bool
}

// openFolder opens the directory of a model in a repository. A directory that is a link may lead
// anywhere, because the writer of the repository placed it there; its target is then a root of its
// own. The folder of a registered repository stays readable even if the repository is unregistered.
func openFolder(repository *rootDir, name string) (_ *Folder, err error) {
	f := &Folder{
		root: repository.root, inner: name,
		path: filepath.Join(repository.path, name), shown: strings.TrimRight(repository.shown, "/") + "/" + name,
	}
	if repository.registered {
		if f.root, err = repository.root.OpenRoot("."); err != nil {
			return nil, err
		}
		f.owned = true
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.root.Stat(name)
	if err != nil {
		link, lerr := f.root.Lstat(name)
		if lerr != nil || link.Mode()&fs.ModeSymlink == 0 {
			return nil, err
		}
		target, err := os.OpenRoot(f.path)
		if err != nil {
			return nil, err
		}
		f.Close()
		f.root, f.inner, f.owned = target, ".", true
		return f, nil
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: f.path, Err: syscall.ENOTDIR}
	}
	return f, nil
}

// Close closes the directory. The folder is not used afterwards.
func (f *Folder) Close() {
	if f.owned {
		_ = f.root.Close()
	}
}

// Exists reports whether a file of that name exists, even if it is unreadable.
func (f *Folder) Exists(name string) bool {
	_, err := f.root.Stat(filepath.Join(f.inner, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// configInUse returns the name of the model's configuration file, which may be missing.
func (f *Folder) configInUse() string {
	if f.configName != "" {
		if named := filepath.Join("configs", f.configName+".pbtxt"); f.Exists(named) {
			return named
		}
	}
	return configFile
}

// Config returns at most limit bytes of the configuration file, and its name as the operator would
// write it. text is nil if the file is missing.
func (f *Folder) Config(limit int64) (file string, text []byte, err error) {
	name := f.configInUse()
	file = f.shown + "/" + name
	if !f.Exists(name) {
		return file, nil, nil
	}
	text, err = f.ReadStart(name, limit)
	return file, text, err
}

// openRegular opens a file that can be read to its end; a pipe or a device would block, or never
// end. Errors are Internal in Triton's words, and show clients no path outside the repository.
func (f *Folder) openRegular(name string) (*os.File, error) {
	inner := filepath.Join(f.inner, name)
	info, err := f.root.Stat(inner)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("not a regular file (%s)", info.Mode().Type())
		if info.IsDir() {
			err = syscall.EISDIR
		}
	}
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	file, err := f.root.OpenFile(inner, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	return file, nil
}

// Read returns a whole file. Errors are those of openRegular.
func (f *Folder) Read(name string) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1)) // bound: maxFileBytes
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("file has more than %d bytes", maxFileBytes)
	}
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	return content, nil
}

// ReadStart returns at most limit bytes from the start of a file. Errors are those of Read.
func (f *Folder) ReadStart(name string, limit int64) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit)) // bound: limit
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	return data, nil
}

// ReadCharged is ReadStart for a file whose size a client may choose: its bytes are charged to c.
func (f *Folder) ReadCharged(c *budget.Charge, name string, limit int64) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	data, err := budget.Make[byte](c, budget.Bodies, int(min(info.Size(), limit)))
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(file, data)
	if shorter := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !shorter {
		return nil, f.unreadable(name, err)
	}
	return data[:n], nil
}

func (f *Folder) unreadable(name string, err error) error {
	text := func(directory string) string {
		return fmt.Sprintf("failed to open text file for read %s/%s: %s", directory, name, strerror(err))
	}
	return &infer.Error{Code: infer.Internal, Message: text(filepath.Base(f.shown)), Detail: text(f.shown)}
}

// strerror returns the reason alone, in C's words if it came from the kernel.
func strerror(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		text := number.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// entry is a directory entry. Lists of entries are sorted by name.
type entry struct {
	name string
	dir  bool // a directory, or a link to one
}

// list returns the entries of a directory in the folder, "." for the folder itself.
func (f *Folder) list(name string) ([]entry, error) {
	return listDirectory(f.root, filepath.Join(f.inner, name), filepath.Join(f.path, name))
}

// listDirectory lists inner, whose absolute path is path. A link counts as its target, wherever
// that is: nothing is read through it here.
func listDirectory(root *os.Root, inner, path string) ([]entry, error) {
	var found []fs.DirEntry
	if directory, err := root.Open(inner); err == nil {
		found, err = directory.ReadDir(-1)
		_ = directory.Close()
		if err != nil {
			return nil, err
		}
	} else if link, lerr := root.Lstat(inner); lerr != nil || link.Mode()&fs.ModeSymlink == 0 {
		return nil, err
	} else if found, err = os.ReadDir(path); err != nil { // a version directory that is a link
		return nil, err
	}
	entries := make([]entry, 0, len(found)) // bound: the entries of the directory
	for _, e := range found {
		dir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(filepath.Join(path, e.Name()))
			dir = err == nil && info.IsDir()
		}
		entries = append(entries, entry{name: e.Name(), dir: dir})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}
