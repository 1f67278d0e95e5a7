package clientshm

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// open opens the file of a region, checks it by its descriptor, and maps the range. The caller owns
// the one reference. After an error nothing is open.
func (r *Registry) open(status Status, file string) (*region, error) {
	fd, end, err := r.openFile(status.Key, file)
	if err != nil {
		return nil, err
	}
	mapping, err := mapRange(fd, end, status)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	shared := shm.NewShared(fd, int64(status.Offset), int64(status.Size))
	return &region{registry: r, status: status, fd: fd, mapping: mapping, shared: shared}, nil
}

// openFile returns a descriptor of a regular file that is not the server's own, and the file's
// current size.
//
// As in shm_open(3) the file is one name in the folder, so that neither ".." nor an intermediate
// link can lead elsewhere. The last link is not followed either. O_NONBLOCK keeps the open of a
// pipe from waiting for its other end.
func (r *Registry) openFile(key, file string) (fd int, size uint64, err error) {
	unable := infer.Errorf(infer.Internal, "Unable to open shared memory region: '%s'", key)
	if strings.Contains(file, "/") || file == "." || file == ".." {
		return -1, 0, unable
	}
	const flags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	for {
		if fd, err = unix.Open(r.config.Directory+"/"+file, flags, 0); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, 0, unable
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return -1, 0, infer.Errorf(infer.Internal, "Invalid shared memory region: '%s'", key)
	}
	if r.config.Ours != nil && r.config.Ours(st.Dev, st.Ino) {
		_ = unix.Close(fd)
		return -1, 0, unable
	}
	return fd, uint64(st.Size), nil
}

// mapRange maps the range of a region in a file of end bytes. It touches no page, so that holes in
// the file take no memory.
func mapRange(fd int, end uint64, status Status) ([]byte, error) {
	if status.Size > end || status.Offset > end-status.Size {
		return nil, infer.Errorf(infer.InvalidArg, "failed to register shared memory region '%s': invalid args", status.Name)
	}
	if status.Size > mostBytes {
		return nil, errSpace(status.Name, unix.ENOMEM)
	}
	// The kernel rejects a length of 0 and an offset that is not a multiple of the page size.
	mapping, err := unix.Mmap(fd, int64(status.Offset), int(status.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errSpace(status.Name, err)
	}
	return mapping, nil
}

// errSpace is the error of a region for which there is no address space.
func errSpace(name string, why error) error {
	return infer.Errorf(infer.InvalidArg, "failed to register shared memory region '%s': unable to process address space%s", name, reason(why))
}

// reason returns the text of a kernel error as the C library has it, with a capital letter.
func reason(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	text := errno.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
