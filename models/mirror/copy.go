package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/objectstore"
)

// folderPrefix begins the names of copies, as in Triton.
const folderPrefix = "folder"

// living is the newest copy of a model, with the objects of its files.
type living struct {
	copy  *copies.Copy
	files map[string]madeFile // by key
}

// madeFile is the state of a file at its completion.
type madeFile struct {
	object objectstore.Object
	inode  uint64
	time   int64 // of its last change, in nanoseconds
}

// Copy makes a directory with the wanted objects of a model. The caller is its user. The error is
// objectstore.ErrChanged if the store has other objects by now.
func (m *Mirror) Copy(ctx context.Context, model *Model, wanted func(key string) bool) (*copies.Copy, error) {
	select {
	case m.copying <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.copying }()
	began := time.Now()
	defer func() { m.counts.spent.Add(int64(time.Since(began))) }()
	c, err := m.folder()
	if err != nil {
		return nil, err
	}
	files, err := m.fill(ctx, c.Path(), model, wanted)
	if err != nil {
		c.Drop()
		if errors.Is(err, objectstore.ErrUnreachable) {
			m.counts.failures.Add(1)
		}
		return nil, err
	}
	m.counts.copies.Add(1)
	m.config.Log.Info().Msgf("copied model '%s' from %s: %d files in %s", model.Name, m.config.Location, len(files), time.Since(began).Round(time.Millisecond))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.living[model.Name] = &living{c, files}
	return c, nil
}

// fill makes the files of a copy.
func (m *Mirror) fill(ctx context.Context, directory string, model *Model, wanted func(key string) bool) (map[string]madeFile, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, m.unwritable(directory, err)
	}
	defer root.Close()
	before := m.hold(model.Name)
	if before != nil {
		defer before.copy.Drop()
	}
	files := make(map[string]madeFile) // bound: the model's objects, Config.MaxObjects
	var todo []objectstore.Object      // bound: likewise
	for _, o := range model.Objects {
		if !wanted(o.Key) {
			continue
		}
		parent := path.Dir(o.Key)
		if o.Directory {
			parent = o.Key
		}
		if err := root.MkdirAll(parent, 0o700); err != nil {
			return nil, m.rejected(model, o, err)
		}
		switch {
		case o.Directory:
		case m.link(before, directory, o, files):
			m.counts.taken.Add(uint64(o.Size))
		default:
			todo = append(todo, o)
		}
	}
	space, err := m.claim(directory, fmt.Sprintf("model '%s' of %s", model.Name, m.config.Location), todo)
	if err != nil {
		return nil, err
	}
	defer space.giveBack()
	made := make([]madeFile, len(todo)) // each written by the goroutine that fetches it. bound: likewise
	err = m.inParallel(ctx, len(todo), func(ctx context.Context, i int) (err error) {
		made[i], err = m.fetch(ctx, root, model, todo[i], space)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, o := range todo {
		files[o.Key] = made[i]
	}
	return files, nil
}

// hold returns the newest copy of a model that is still used; the caller drops it.
func (m *Mirror) hold(name string) *living {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.living[name]
	if l == nil {
		return nil
	}
	if !l.copy.TryHold() {
		delete(m.living, name)
		return nil
	}
	return l
}

// link reuses a file of an earlier copy, if it was made from the same object and is unchanged.
func (m *Mirror) link(from *living, directory string, o objectstore.Object, files map[string]madeFile) bool {
	if from == nil {
		return false
	}
	file, has := from.files[o.Key]
	if !has || !same(file.object, o) {
		return false
	}
	source, target := filepath.Join(from.copy.Path(), o.Key), filepath.Join(directory, o.Key)
	if os.Link(source, target) != nil {
		return false
	}
	// The model may have written to its file or replaced it, so the link is examined and not the
	// source.
	info, err := os.Lstat(target)
	if err == nil && info.Mode().IsRegular() && info.Size() == o.Size && inodeOf(info) == file.inode && info.ModTime().UnixNano() == file.time {
		files[o.Key] = file
		return true
	}
	_ = os.Remove(target)
	return false
}

// fetch makes one file.
func (m *Mirror) fetch(ctx context.Context, root *os.Root, model *Model, o objectstore.Object, space *diskSpace) (made madeFile, err error) {
	file, err := root.OpenFile(o.Key, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return made, m.rejected(model, o, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	inStore := o
	inStore.Key = model.Name + "/" + o.Key
	if err := m.fetcher.fetch(ctx, file, inStore, space); err != nil {
		return made, err
	}
	info, err := file.Stat()
	if err != nil {
		return made, m.unwritable(root.Name(), err)
	}
	return madeFile{object: o, inode: inodeOf(info), time: info.ModTime().UnixNano()}, nil
}

// rejected is the error of an object that cannot be stored in the copy.
func (m *Mirror) rejected(model *Model, o objectstore.Object, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) {
		return infer.Errorf(infer.Internal, "%s is an object, and there are objects below it: no directory can have both; remove one", m.config.Location.Join(model.Name+"/"+twice(model, o.Key)))
	}
	return m.unwritable(filepath.Join(m.config.Workspace.Base(), folderPrefix+"XXXXXX", path.Dir(o.Key)), err)
}

// twice finds the key that is both an object and a directory, from one of the objects concerned.
func twice(model *Model, key string) string {
	for at := path.Dir(key); at != "."; at = path.Dir(at) {
		if model.Has(at) {
			return at
		}
	}
	return key
}

func inodeOf(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
