package repository

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
)

const (
	// uploadsPrefix begins the names of the directories that hold uploads, one for
	// each server, in the directory for temporary files.
	uploadsPrefix = "nereid-models-"
	// DefaultUploadEntries is how many files and directories one upload may have if
	// NewUploads is not told.
	DefaultUploadEntries = 16384
	// maxPathBytes bounds the path of a file: the kernel opens none as long.
	maxPathBytes = 4096
)

// Uploads are the directories of the models whose files came with the request to
// load them. They lie in one private directory, which is made for the first and
// is locked as long as the server lives.
type Uploads struct {
	log  zerolog.Logger
	most int // files and directories of one

	mu     sync.Mutex
	parent *os.File // nil until there was an upload
	closed bool
}

// NewUploads makes no directory yet. What cannot be removed is logged. An upload may have
// most files and directories; 0 is DefaultUploadEntries.
func NewUploads(log zerolog.Logger, most int) *Uploads {
	return &Uploads{log: log, most: cmp.Or(most, DefaultUploadEntries)}
}

// Upload is the directory of one load request. It is removed when the load and
// all versions that came of it have given it back.
type Upload struct {
	path  string
	users atomic.Int32
	log   zerolog.Logger
}

// Hold adds a user to an upload, which may be nil.
func (u *Upload) Hold() *Upload {
	if u != nil {
		u.users.Add(1)
	}
	return u
}

// open opens the directory as that of the model name. Texts show that name alone.
func (u *Upload) open(name string) (*Folder, error) {
	root, err := os.OpenRoot(u.path)
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "failed to open directory %s: %s", name, strerror(err))
	}
	return &Folder{root: root, inner: ".", path: u.path, shown: name, owned: true}, nil
}

// Drop takes a user away; the last one takes the directory along.
func (u *Upload) Drop() {
	if u == nil || u.users.Add(-1) > 0 {
		return
	}
	if err := removeTree(u.path); err != nil {
		u.log.Error().Msgf("remove the files of a model that is gone: %v", err)
	}
}

// Write makes a directory of the files, whose names are relative to it, and of
// config, the text of config.pbtxt. The caller is its user. Nothing is left
// after an error, which is in Triton's words where it has some.
func (s *Uploads) Write(files map[string][]byte, config []byte) (*Upload, error) {
	parent, err := s.directory()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "failed to create a directory for the files of the request: %s", strerror(err))
	}
	u := (&Upload{path: directory, log: s.log}).Hold()
	if err := u.fill(files, config, s.most); err != nil {
		u.Drop()
		return nil, err
	}
	return u, nil
}

// directory returns the path of the directory that uploads lie in.
func (s *Uploads) directory() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", infer.Errorf(infer.Unavailable, "Server exiting")
	}
	if s.parent != nil {
		if _, err := os.Lstat(s.parent.Name()); errors.Is(err, fs.ErrNotExist) { // it was cleaned up
			_ = s.parent.Close()
			s.parent = nil
		}
	}
	if s.parent == nil {
		parent, err := makeUploads()
		if err != nil {
			return "", infer.Errorf(infer.Internal, "failed to create a directory for the files of requests: %v", err)
		}
		s.parent = parent
	}
	return s.parent.Name(), nil
}

// Close removes all uploads; no more can be made.
func (s *Uploads) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.parent == nil {
		return
	}
	if err := removeTree(s.parent.Name()); err != nil {
		s.log.Error().Msgf("remove the files of models: %v", err)
	}
	_ = s.parent.Close()
	s.parent = nil
}

// makeUploads makes the directory for uploads. The lock on it tells other
// servers, and cleaners of temporary files, that it is in use.
func makeUploads() (*os.File, error) {
	for {
		path, err := os.MkdirTemp("", uploadsPrefix)
		if err != nil {
			return nil, err
		}
		directory, err := os.Open(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // another server has swept it away before it was locked
			}
			return nil, errors.Join(err, os.Remove(path))
		}
		if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), directory.Close(), os.Remove(path))
		}
		locked, err := directory.Stat()
		named, gone := os.Lstat(path)
		if err == nil && gone == nil && os.SameFile(locked, named) {
			return directory, nil
		}
		_ = directory.Close()
	}
}

// Sweep removes what servers of this user have left that were killed.
func (s *Uploads) Sweep() {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), uploadsPrefix) || !e.IsDir() {
			continue
		}
		if err := sweepUpload(filepath.Join(os.TempDir(), e.Name())); err != nil {
			s.log.Warn().Msgf("remove the files of models that a server has left: %v", err)
		}
	}
}

func sweepUpload(path string) error {
	directory, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil //nolint:nilerr // it is another user's, or gone
	}
	defer directory.Close()
	info, err := directory.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != os.Getuid() || unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return removeTree(path)
}

// removeTree removes a directory, whatever a model has made of the modes in it.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(at, 0o700)
		}
		return err
	})
	return os.RemoveAll(path)
}

// fill writes the files and, over any that has its name, the configuration.
func (u *Upload) fill(files map[string][]byte, config []byte, most int) error {
	root, err := os.OpenRoot(u.path)
	if err != nil {
		return infer.Errorf(infer.Internal, "failed to open directory %s: %s", u.path, strerror(err))
	}
	defer root.Close()
	names, err := placeFiles(u.path, files, most)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		place := names[name]
		if parent := path.Dir(place); parent != "." {
			err := root.MkdirAll(parent, 0o700)
			if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
				return infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%s', directory has been created as a file", name)
			}
			if err != nil {
				return infer.Errorf(infer.Internal, "failed to create directory %s: %s", path.Join(u.path, parent), strerror(err))
			}
		}
		if err := u.writeFile(root, place, files[name]); err != nil {
			return err
		}
	}
	return u.writeFile(root, configFile, config)
}

func (u *Upload) writeFile(root *os.Root, place string, content []byte) error {
	err := root.WriteFile(place, content, 0o600)
	if err != nil {
		return infer.Errorf(infer.Internal, "failed to open binary file for write %s/%s: %s", u.path, place, strerror(err))
	}
	return nil
}

// placeFiles tells where in directory each file lies. A slash in front of a name
// does not lead out: the name follows the directory's.
func placeFiles(directory string, files map[string][]byte, most int) (map[string]string, error) {
	places := make(map[string]string, len(files))
	entries := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		relative := strings.TrimLeft(name, "/")
		place := path.Clean(relative)
		shown := path.Join(directory, name)
		switch {
		case len(directory)+len(name) >= maxPathBytes:
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%.64s...', its path has %d bytes, want less than %d", name, len(directory)+len(name)+1, maxPathBytes)
		case relative != "" && !filepath.IsLocal(relative):
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%s' with normalized path '%s' must stay within model directory.", name, shown)
		case place == "." || strings.HasSuffix(relative, "/"):
			return nil, infer.Errorf(infer.Internal, "failed to open binary file for write %s/%s: Is a directory", directory, relative)
		case strings.Contains(name, "\x00"):
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter %q, a name has no zero byte", "file:"+name)
		}
		for at := place; at != "." && !entries[at]; at = path.Dir(at) {
			entries[at] = true
		}
		if len(entries) > most {
			return nil, infer.Errorf(infer.InvalidArg, "the files of the request need more than %d files and directories", most)
		}
		places[name] = place
	}
	return places, nil
}
