package archive

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	openDirectories = 32       // kept open: archives go through a tree directory by directory
	maxNameBytes    = 64 << 20 // names that are kept for the end
	nameOverhead    = 64       // bytes for each of them

	ofDirectory = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// tree creates names below a directory. It belongs to the reader of entries.
//
// Confinement: a name is opened component by component, each by openat in the directory that was
// opened before, with O_NOFOLLOW, and is never "..". New entries have a single component, and
// mkdirat, symlinkat, linkat, unlinkat and openat with O_EXCL follow no link there. So no call can
// leave the directory, whatever links the archive has created.
type tree struct {
	root  *os.File
	fd    int  // of root
	folds bool // the file system considers some different names equal

	open map[string]*directory // by clean name
	tick uint64                // of the last use of a directory

	made  func() error // counts an entry, and may refuse it
	times []directoryTime
	names int // bytes of names in times and upward

	upward []string // symbolic links with ".." after a name, which are looked at last
}

// directory is a directory of the tree that is open.
type directory struct {
	fd   int
	used uint64
}

// directoryTime is the time that a directory gets at the end.
type directoryTime struct {
	name  string
	mtime unix.Timespec
}

func newTree(root *os.Root, made func() error) (*tree, error) {
	opened, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open the directory to unpack into: %w", err)
	}
	t := &tree{root: opened, fd: int(opened.Fd()), open: map[string]*directory{}, made: made}
	if err := t.probe(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// probe checks whether the file system folds case, as ext4 can for a directory tree.
func (t *tree) probe() error {
	const name, other = ".case-probe", ".CASE-PROBE"
	if err := unix.Mkdirat(t.fd, name, 0o700); err != nil {
		return diskError("", "make a directory in "+t.root.Name(), err)
	}
	var stat unix.Stat_t
	t.folds = unix.Fstatat(t.fd, other, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
	if err := unix.Unlinkat(t.fd, name, unix.AT_REMOVEDIR); err != nil {
		return diskError("", "remove a directory in "+t.root.Name(), err)
	}
	return nil
}

// timesByDescriptor reports whether utimensat accepts a descriptor without a path, as it does since
// Linux 5.8.
func (t *tree) timesByDescriptor() bool {
	nothing := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	return unix.UtimesNanoAt(t.fd, "", nothing, unix.AT_EMPTY_PATH) == nil
}

func (t *tree) close() error {
	for name, d := range t.open {
		_ = unix.Close(d.fd)
		delete(t.open, name)
	}
	return t.root.Close()
}

// directory returns a descriptor of a directory, which it creates if necessary. The descriptor is
// valid until the next call. entry is the entry's whole name, for errors.
func (t *tree) directory(name, entry string) (int, error) {
	if name == "" {
		return t.fd, nil
	}
	t.tick++
	if d := t.open[name]; d != nil {
		d.used = t.tick
		return d.fd, nil
	}
	above, base := splitName(name)
	parent, err := t.directory(above, entry)
	if err != nil {
		return -1, err
	}
	fd, err := openat(parent, base, ofDirectory, 0)
	if err == unix.ENOENT {
		if err := t.made(); err != nil {
			return -1, err
		}
		if err = unix.Mkdirat(parent, base, 0o755); err == nil {
			// The umask may have removed the permission to write in it.
			if err = unix.Fchmodat(parent, base, 0o755, 0); err == nil {
				fd, err = openat(parent, base, ofDirectory, 0)
			}
		}
		if err != nil {
			return -1, diskError("", fmt.Sprintf("make the directory %q", name), err)
		}
	}
	if err != nil {
		return -1, t.through(parent, base, name, entry, err)
	}
	if t.folds {
		if err := t.exact(parent, base); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	t.keep(name, fd)
	return fd, nil
}

// through explains why a component of a name could not be opened as a directory.
func (t *tree) through(parent int, base, name, entry string, err error) error {
	var stat unix.Stat_t
	if unix.Fstatat(parent, base, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			return &Error{Reason: refusedHeader + "Cannot extract through symlink " + shortened(entry)}
		case unix.S_IFREG:
			return &Error{Reason: fmt.Sprintf("%q, in which it would lie, is a file", name)}
		}
	}
	return diskError("", fmt.Sprintf("open the directory %q", name), err)
}

// keep keeps a directory open, and closes the least recently used one.
func (t *tree) keep(name string, fd int) {
	if len(t.open) >= openDirectories {
		oldest, used := "", t.tick+1
		for name, d := range t.open {
			if d.used < used {
				oldest, used = name, d.used
			}
		}
		_ = unix.Close(t.open[oldest].fd)
		delete(t.open, oldest)
	}
	t.open[name] = &directory{fd: fd, used: t.tick}
}

// existing opens a directory of earlier entries, for the caller to close. It creates none, and
// returns ENOENT, ENOTDIR or an Error.
func (t *tree) existing(name, entry string) (int, error) {
	fd, err := openat(t.fd, ".", ofDirectory, 0)
	if err != nil || name == "" {
		return fd, err
	}
	done := 0
	for base := range strings.SplitSeq(name, "/") {
		done += len(base) + 1
		next, err := openat(fd, base, ofDirectory, 0)
		if err == unix.ENOTDIR || err == unix.ELOOP {
			err = t.through(fd, base, name[:done-1], entry, err)
		}
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// setDirectory sets a directory's mode now and keeps its time for the end. The owner may always
// write in it.
func (t *tree) setDirectory(name string, mode uint32, mtime unix.Timespec) error {
	above, base := splitName(name)
	if _, err := t.directory(name, name); err != nil {
		return err
	}
	parent, err := t.directory(above, name)
	if err != nil {
		return err
	}
	if err := unix.Fchmodat(parent, base, mode, 0); err != nil {
		return diskError("", "set the mode of the directory", err)
	}
	if err := t.remember(name); err != nil {
		return err
	}
	t.times = append(t.times, directoryTime{name, mtime})
	return nil
}

// remember counts a name that is kept for the end.
func (t *tree) remember(name string) error {
	if t.names += len(name) + nameOverhead; t.names > maxNameBytes {
		return &Error{Reason: fmt.Sprintf("the names of the archive's directories take more than %d bytes", maxNameBytes)}
	}
	return nil
}

// setTimes sets the times of all directories.
func (t *tree) setTimes() error {
	for _, d := range t.times {
		above, base := splitName(d.name)
		parent, err := t.directory(above, d.name)
		if err != nil {
			return err
		}
		if err := setTime(parent, base, d.mtime); err != nil {
			return diskError(d.name, "set the time of the directory", err)
		}
	}
	return nil
}

func setTime(parent int, base string, mtime unix.Timespec) error {
	return unix.UtimesNanoAt(parent, base, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}, unix.AT_SYMLINK_NOFOLLOW)
}

// create creates a file and returns its descriptor.
func (t *tree) create(name string) (fd int, err error) {
	err = t.makeEntry(name, "make the file", func(parent int, base string) (err error) {
		fd, err = openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

// makeEntry calls do to create a name. An earlier entry of this name is removed, unless it is a
// directory.
func (t *tree) makeEntry(name, doing string, do func(parent int, base string) error) error {
	above, base := splitName(name)
	parent, err := t.directory(above, name)
	if err != nil {
		return err
	}
	err = do(parent, base)
	if err == unix.EEXIST {
		if err := t.clear(parent, base); err != nil {
			return err
		}
		err = do(parent, base)
	}
	if err != nil {
		return diskError("", doing, err)
	}
	return nil
}

// clear removes an earlier entry, for a second entry of its name.
func (t *tree) clear(parent int, base string) error {
	if t.folds {
		if err := t.exact(parent, base); err != nil {
			return err
		}
	}
	err := unix.Unlinkat(parent, base, 0)
	if err == unix.EISDIR {
		return &Error{Reason: "an entry before has made a directory of this name"}
	}
	if err != nil {
		return diskError("", "replace the entry before of this name", err)
	}
	return nil
}

// exact refuses a name that exists in another spelling, in a file system that considers both equal.
func (t *tree) exact(parent int, base string) error {
	fd, err := openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return diskError("", "list its directory", err)
	}
	list := os.NewFile(uintptr(fd), ".")
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return diskError("", "list its directory", err)
	}
	other := ""
	for _, name := range names {
		if name == base {
			return nil
		}
		if strings.EqualFold(name, base) {
			other = name
		}
	}
	return &Error{Reason: fmt.Sprintf("the archive also has %q, and this file system does not tell case apart; unpack into one that does", other)}
}

// openat is unix.Openat, retried after signals.
func openat(directory int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(directory, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
