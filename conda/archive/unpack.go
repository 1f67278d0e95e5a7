package archive

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Unpack makes the entries of an archive below root, an empty directory. source gives
// the archive from its first byte and is read to its end, in a goroutine of Unpack's, so
// that a caller may hash what it reads. Unpack returns when ctx ends, but waits for a
// Read that is under way; it leaves no goroutine. Errors are an *Error, what source
// returned, wrapped, or the cause of ctx.
func Unpack(ctx context.Context, source io.Reader, root *os.Root, options Options) (Summary, error) {
	return Summary{}, errors.ErrUnsupported
}

// Sync makes what lies below root durable, with one system call for the whole file
// system.
func Sync(root *os.Root) error {
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := unix.Syncfs(int(directory.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: root.Name(), Err: err}
	}
	return nil
}
