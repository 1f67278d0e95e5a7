package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"golang.org/x/sys/unix"
)

const (
	maxNameBytes = 64 << 20 // names that are kept for the end
	nameOverhead = 64       // bytes for each of them
	nameStep     = 1 << 20  // are charged at a time
)

// tree creates names below a directory. It belongs to the reader of entries.
//
// Confinement: no call of an os.Root leaves the directory, whatever links the archive has created.
// Inside it a root follows symbolic links, so the components of each name are looked at first: all
// directories in which the tree creates something are in the map, and no directory is ever removed.
type tree struct {
	root  *os.Root
	folds bool // the file system considers some different names equal

	// directories are the clean names that are known to be directories, with the times that they
	// get at the end; the zero time of those without an entry.
	//
	// bound: maxNameBytes
	directories map[string]time.Time
	upward      []string // symbolic links with ".." after a name, which are looked at last. bound: maxNameBytes
	names       int      // bytes of names in directories and upward
	charge      *budget.Charge
	charged     int // of names

	made func() error // counts an entry, and may refuse it

	// last is the directory of the last entry, and its name: archives go through a tree directory
	// by directory, and a root looks at each component of a name.
	last     *os.Root
	lastName string
}

func newTree(root *os.Root, made func() error, charge *budget.Charge) (*tree, error) {
	t := &tree{root: root, directories: map[string]time.Time{"": {}}, made: made, charge: charge}
	return t, t.probe()
}

func (t *tree) close() {
	if t.last != nil {
		_ = t.last.Close()
	}
}

// probe checks whether the file system folds case, as ext4 can for a directory tree.
func (t *tree) probe() error {
	const name, other = ".case-probe", ".CASE-PROBE"
	if err := t.root.Mkdir(name, 0o700); err != nil {
		return diskError("", "make a directory in "+t.root.Name(), err)
	}
	_, err := t.root.Lstat(other)
	t.folds = err == nil
	if err := t.root.Remove(name); err != nil {
		return diskError("", "remove a directory in "+t.root.Name(), err)
	}
	return nil
}

// existing checks that a name is a directory, without passing through a symbolic link. The error is
// an *Error, or fs.ErrNotExist. entry is the entry's whole name, for errors.
func (t *tree) existing(name, entry string) error {
	if _, known := t.directories[name]; known {
		return nil
	}
	above, _ := splitName(name)
	if err := t.existing(above, entry); err != nil {
		return err
	}
	info, err := t.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case err != nil:
		return diskError("", fmt.Sprintf("open the directory %q", name), err)
	case info.Mode()&fs.ModeSymlink != 0:
		return &Error{Reason: refusedHeader + "Cannot extract through symlink " + infer.Cut(entry, mostShown)}
	case !info.IsDir():
		return &Error{Reason: fmt.Sprintf("%q, in which it would lie, is a file", name)}
	}
	if t.folds {
		if err := t.exact(name); err != nil {
			return err
		}
	}
	return t.know(name)
}

// directory creates a directory and those above it, as far as they do not exist.
func (t *tree) directory(name, entry string) error {
	err := t.existing(name, entry)
	if err != fs.ErrNotExist {
		return err
	}
	above, _ := splitName(name)
	if err := t.directory(above, entry); err != nil {
		return err
	}
	if err := t.made(); err != nil {
		return err
	}
	if err = t.root.Mkdir(name, 0o755); err == nil {
		err = t.root.Chmod(name, 0o755) // the umask may have removed the permission to write in it
	}
	if err != nil {
		return diskError("", fmt.Sprintf("make the directory %q", name), err)
	}
	return t.know(name)
}

// know keeps a directory's name: a copy, as a name of an entry may be a part of its header, which
// has up to a mebibyte.
func (t *tree) know(name string) error {
	t.directories[strings.Clone(name)] = time.Time{} // bound: maxName
	return t.remember(name)
}

// setDirectory sets a directory's mode now and keeps its time for the end. The owner may always
// write in it.
func (t *tree) setDirectory(name string, mode fs.FileMode, mtime time.Time) error {
	if err := t.directory(name, name); err != nil {
		return err
	}
	if err := t.root.Chmod(name, mode); err != nil {
		return diskError("", "set the mode of the directory", err)
	}
	t.directories[strings.Clone(name)] = mtime // it replaces the key, too. bound: maxName
	return nil
}

// remember counts and charges a name that is kept for the end.
func (t *tree) remember(name string) error {
	if t.names += len(name) + nameOverhead; t.names > maxNameBytes {
		return &Error{Reason: fmt.Sprintf("the names of the archive's directories take more than %d bytes", maxNameBytes)}
	}
	if t.names <= t.charged {
		return nil
	}
	if err := t.charge.Take(budget.Decompression, 2*nameStep); err != nil { // a map has up to twice its entries
		return err
	}
	t.charged += nameStep
	return nil
}

// setTimes sets the times of all directories.
func (t *tree) setTimes() error {
	for name, mtime := range t.directories {
		if mtime.IsZero() {
			continue
		}
		if err := t.root.Chtimes(name, time.Time{}, mtime); err != nil {
			return diskError(name, "set the time of the directory", err)
		}
	}
	return nil
}

// setLinkTime sets the time of a symbolic link, which an os.Root would follow.
func setLinkTime(parent *os.Root, base string, mtime time.Time) error {
	directory, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close()
	return unix.UtimesNanoAt(int(directory.Fd()), base, timesOf(mtime), unix.AT_SYMLINK_NOFOLLOW)
}

// create creates a file.
func (t *tree) create(name string) (f *os.File, err error) {
	err = t.makeEntry(name, "make the file", func(parent *os.Root, base string) (err error) {
		f, err = parent.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	return f, err
}

// makeEntry calls do to create a name in its directory. An earlier entry of this name is removed,
// unless it is a directory.
func (t *tree) makeEntry(name, doing string, do func(parent *os.Root, base string) error) error {
	above, base := splitName(name)
	if err := t.directory(above, name); err != nil {
		return err
	}
	parent, err := t.open(above)
	if err == nil {
		err = do(parent, base)
	}
	if errors.Is(err, fs.ErrExist) {
		if err := t.clear(name); err != nil {
			return err
		}
		err = do(parent, base)
	}
	if err != nil {
		return diskError("", doing, err)
	}
	return nil
}

// open opens a known directory, until the next call.
func (t *tree) open(name string) (*os.Root, error) {
	if name == "" {
		return t.root, nil
	}
	if t.last != nil && t.lastName == name {
		return t.last, nil
	}
	t.close()
	var err error
	t.last, err = t.root.OpenRoot(name)
	t.lastName = name
	return t.last, err
}

// clear removes an earlier entry, for a second entry of its name.
func (t *tree) clear(name string) error {
	if t.folds {
		if err := t.exact(name); err != nil {
			return err
		}
	}
	info, err := t.root.Lstat(name)
	if err == nil && info.IsDir() {
		return &Error{Reason: "an earlier entry has created a directory of this name"}
	}
	if err == nil {
		err = t.root.Remove(name)
	}
	if err != nil {
		return diskError("", "replace the earlier entry of this name", err)
	}
	return nil
}

// exact refuses a name that exists in another spelling, in a file system that considers both equal.
func (t *tree) exact(name string) error {
	list, err := t.root.Open(path.Dir(name))
	if err != nil {
		return diskError("", "list its directory", err)
	}
	defer list.Close()
	base, other := path.Base(name), ""
	for {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if name == base {
				return nil
			}
			if strings.EqualFold(name, base) {
				other = name
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return diskError("", "list its directory", err)
		}
	}
	return &Error{Reason: fmt.Sprintf("the archive also has %q, and this file system ignores case; unpack into a case-sensitive one", other)}
}
