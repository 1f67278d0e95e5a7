package cache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// source is an open archive.
type source struct {
	path string
	file *os.File
	id   identity

	print string // see fingerprint
}

// identity distinguishes contents of a file without reading it. Only the kernel sets ctime, and
// each change of the content moves it.
type identity struct {
	device       uint64
	inode        uint64
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
}

// openSource opens an archive. O_NONBLOCK keeps a pipe of that name from stopping the load.
func openSource(path string) (*source, error) {
	file, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	src := &source{path: path, file: file}
	if src.id, err = identify(file); err != nil {
		file.Close()
		return nil, err
	}
	return src, nil
}

func identify(file *os.File) (identity, error) {
	info, err := file.Stat()
	if err != nil {
		return identity{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return identity{}, fmt.Errorf("%s is not a regular file (mode %s)", file.Name(), info.Mode())
	}
	return identity{
		device: stat.Dev, inode: stat.Ino, size: stat.Size,
		mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(),
	}, nil
}

// key is the name of the index entry. It excludes the device: the device of an overlay, a network
// file system or a volume changes with each mount.
func (id identity) key() string {
	return fmt.Sprintf("%d-%d-%d-%d", id.inode, id.size, id.mtime, id.ctime)
}

// indexed is an index entry.
type indexed struct {
	Device      uint64 `json:"device"`
	Fingerprint string `json:"fingerprint"`
	Digest      string `json:"digest"`
}

// digestOf returns the digest of an archive in the index, else "". On the same device it reads
// nothing of the archive.
func (s *store) digestOf(src *source) (string, error) {
	entry := s.readIndex(src.id.key())
	if entry == nil {
		return "", nil
	}
	if entry.Device == src.id.device {
		return entry.Digest, nil
	}
	print, err := src.fingerprint()
	if err != nil || print != entry.Fingerprint {
		return "", err
	}
	return entry.Digest, nil
}

// readIndex returns a readable entry, or nil.
func (s *store) readIndex(name string) *indexed {
	text, err := os.ReadFile(s.path(indexDir, name)) // bound: what enter writes
	var entry indexed
	// bound: its text
	if err != nil || json.Unmarshal(text, &entry) != nil || len(entry.Digest) != 2*sha256.Size {
		return nil
	}
	return &entry
}

// enter records the digest of an archive, and forgets older contents of its file.
func (s *store) enter(ctx context.Context, src *source, digest string) error {
	l, err := waitLock(ctx, s.sourceLock(indexDir))
	if err != nil {
		return err
	}
	defer l.remove()
	entry := indexed{Device: src.id.device, Fingerprint: src.print, Digest: digest}
	text, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	names, err := s.names(indexDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == src.id.key() || !strings.HasPrefix(name, fmt.Sprintf("%d-", src.id.inode)) {
			continue
		}
		if old := s.readIndex(name); old != nil && old.Device == src.id.device {
			_ = os.Remove(s.path(indexDir, name))
		}
	}
	return s.write(append(text, '\n'), indexDir, src.id.key())
}

// fingerprintBytes is the size of each end of an archive that the fingerprint covers.
const fingerprintBytes = 64 << 10

// fingerprint sums the size and both ends of an archive. If two archives have the same fingerprint,
// reading all their bytes is worthwhile. It reads 128 KiB.
func (src *source) fingerprint() (string, error) {
	if src.print != "" {
		return src.print, nil
	}
	sum := sha256.New()
	_ = binary.Write(sum, binary.LittleEndian, src.id.size) // a hash takes all
	for _, at := range []int64{0, max(0, src.id.size-fingerprintBytes)} {
		if _, err := io.Copy(sum, io.NewSectionReader(src.file, at, fingerprintBytes)); err != nil {
			return "", err
		}
	}
	src.print = hex.EncodeToString(sum.Sum(nil)) // bound: a digest
	return src.print, nil
}

// digest reads an archive only for its digest.
func (src *source) digest(ctx context.Context, read io.Writer) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(io.MultiWriter(sum, read), reader{ctx, io.NewSectionReader(src.file, 0, src.id.size)})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), src.unchanged() // bound: a digest
}

// modified is mtime in seconds.
func (id identity) modified() int64 { return id.mtime / int64(time.Second) }

// errChanged reports that an archive was written to while it was read.
var errChanged = errors.New("the archive changed while it was read: write it under another name and rename it when it is complete")

// unchanged checks for a change of the archive since it was opened.
func (src *source) unchanged() error {
	now, err := identify(src.file)
	if err == nil && (now.size != src.id.size || now.mtime != src.id.mtime) {
		return errChanged
	}
	return err
}

// tick is the distance between two changes of a file that the file system can distinguish; coarse
// is that of old file systems, whose times have whole seconds.
const (
	tick   = 50 * time.Millisecond
	coarse = 2 * time.Second
)

// settle waits until a later change of the archive will be visible in its times. Otherwise a change
// within the tick in which the archive was read would go unnoticed. It reports whether the times
// can be trusted from now on.
func (src *source) settle(ctx context.Context) (bool, error) {
	need := tick
	if src.id.ctime%int64(time.Second) == 0 {
		need = coarse
	}
	age := time.Since(time.Unix(0, src.id.ctime))
	switch {
	case age >= need:
		return true, nil
	case need-age > tick:
		return false, nil // too long to wait, or the clocks differ
	}
	return true, sleep(ctx, need-age)
}

// reader ends when its context does.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
