package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/objectstore"
)

// pieceBytes is the size of a read and of a write.
const pieceBytes = 256 << 10

// fetcher copies objects of one location to the disk.
type fetcher struct {
	config Config
	bucket objectstore.Bucket
	counts counts

	space   sync.Mutex
	claimed int64 // bytes that copies still have to write
}

// open opens the location. The error has Triton's text.
func (f *fetcher) open(ctx context.Context) error {
	w := f.watch(ctx)
	defer w.stop()
	bucket, err := f.config.Open(w.ctx, f.config.Location)
	if err != nil {
		return w.blame(err)
	}
	f.bucket = bucket
	return nil
}

// folder makes an empty directory for a copy.
func (f *fetcher) folder() (*copies.Copy, error) {
	c, err := f.config.Workspace.Make(folderPrefix)
	switch {
	case errors.Is(err, copies.ErrClosed):
		return nil, infer.Errorf(infer.Unavailable, "Server exiting")
	case err != nil:
		return nil, uncopied("Failed to create local temp folder: %s/folderXXXXXX, errno:%s (%s names the directory)", f.config.Workspace.Base(), reason(err), f.config.Variable)
	}
	return c, nil
}

// fetch copies exactly this version of an object to a file.
func (f *fetcher) fetch(ctx context.Context, file named, o objectstore.Object, space *diskSpace) error {
	w := f.watch(ctx)
	defer w.stop()
	body, err := f.bucket.Open(w.ctx, o)
	if err != nil {
		return changedOr(stallOf(w, err))
	}
	w.progress()
	defer body.Close()
	size, err := f.pour(file, watchedReader{body, w}, space)
	switch {
	case err != nil:
		return changedOr(stallOf(w, err))
	case size != o.Size:
		return fmt.Errorf("%s has %d bytes, but its listing said %d: %w", f.config.Location.Join(o.Key), size, o.Size, objectstore.ErrChanged)
	}
	return nil
}

// named is a file.
type named interface {
	io.Writer
	Name() string
}

// pour copies a body, whose length the bucket bounds, to a file.
func (f *fetcher) pour(file named, body watchedReader, space *diskSpace) (size int64, err error) {
	piece := make([]byte, pieceBytes)
	for {
		n, err := body.Read(piece)
		if n > 0 {
			f.counts.bytes.Add(uint64(n))
			size += int64(n)
			var werr error
			body.apart(func() { _, werr = file.Write(piece[:n]) }) // a slow disk is not a slow store
			if werr != nil {
				return size, f.unwritable(filepath.Dir(file.Name()), werr)
			}
			space.used(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
}

// changedOr marks a missing object as a change since the listing.
func changedOr(err error) error {
	if errors.Is(err, objectstore.ErrAbsent) {
		return errors.Join(err, objectstore.ErrChanged)
	}
	return err
}

// unwritable is the error of a file that cannot be written.
func (f *fetcher) unwritable(directory string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return uncopied("%s is full: make room, or have %s name a directory with more", f.config.Workspace.Base(), f.config.Variable)
	}
	return uncopied("Failed to create local folder: %s, errno:%s", directory, reason(err))
}

// uncopied is the error of a copy for which there is no space. Clients do not learn the path.
func uncopied(format string, args ...any) error {
	return &infer.Error{Code: infer.Internal, Message: "the server has no room for a copy; its log has details", Detail: fmt.Sprintf(format, args...)}
}

// reason returns the kernel's text.
func reason(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		text := number.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return err.Error()
}
