package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
)

// entries reads the headers of an archive and creates their entries.
type entries struct {
	limits   Limits
	progress *Progress
	tree     *tree
	writers  *writers
	in       *ended
	tar      *tar.Reader

	files   int64  // entries and directories so far
	bytes   int64  // content of the files so far
	current string // the name of the current entry, as in the archive
}

// unpack creates all entries.
func (e *entries) unpack() error {
	for {
		before := e.current
		e.in.zeros = false
		header, err := e.tar.Next()
		if err == io.EOF {
			break
		}
		if err != nil && (header == nil || !errors.Is(err, tar.ErrInsecurePath)) {
			return headerError(before, err)
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue // a comment, as git makes it
		}
		e.current = header.Name
		if err := e.make(header); err != nil {
			return named(e.current, err)
		}
	}
	if e.current == "" {
		return &Error{Reason: "the archive has no entries"}
	}
	return e.finish()
}

// finish reads the bytes after the last entry and completes the work that must wait for all
// entries.
func (e *entries) finish() error {
	if !e.in.zeros {
		return headerError(e.current, io.ErrUnexpectedEOF)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := e.in.Read(buffer)
		for _, b := range buffer[:n] {
			if b != 0 {
				return &Error{Reason: "after its last entry: " + errTrailing.Error()}
			}
		}
		if err == io.EOF {
			break
		}
		if errors.Is(err, errTrailing) {
			return &Error{Reason: "after its last entry: " + errTrailing.Error()}
		}
		if err != nil {
			return headerError(e.current, err)
		}
	}
	if err := e.tree.checkUpward(e.writers.ctx); err != nil {
		return err
	}
	return e.tree.setTimes()
}

// made counts an entry.
func (e *entries) made() error {
	e.progress.Files.Add(1)
	if e.files++; e.files > e.limits.Files {
		return &Error{Limit: "Files", Reason: fmt.Sprintf("the archive has more than %d entries and directories; raise the limit if you trust it", e.limits.Files)}
	}
	return nil
}

// make creates one entry.
func (e *entries) make(header *tar.Header) error {
	name, err := cleanName(header.Name, e.limits.Depth)
	if err != nil {
		return err
	}
	mtime := limitTime(header.ModTime)
	kind := header.Typeflag
	if strings.HasSuffix(header.Name, "/") && kind == tar.TypeReg && header.Size == 0 {
		kind = tar.TypeDir // as old archives have directories
	}
	if name == "" && kind != tar.TypeDir {
		return &Error{Reason: "its name is that of the directory itself"}
	}
	if kind == tar.TypeDir {
		if name == "" {
			return nil // the directory itself is its owner's
		}
		return e.tree.setDirectory(name, fs.FileMode(header.Mode)&0o755|0o700, mtime)
	}
	if err := e.made(); err != nil {
		return err
	}
	switch kind {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return e.file(name, header)
	case tar.TypeSymlink:
		return e.tree.symlink(name, header.Linkname, mtime)
	case tar.TypeLink:
		target, err := cleanName(header.Linkname, e.limits.Depth)
		if err != nil {
			return &Error{Reason: fmt.Sprintf("is a hard link to %q: %s", infer.Cut(header.Linkname, mostShown), err)}
		}
		return e.tree.link(name, target, mtime)
	}
	what := fmt.Sprintf("an entry of the unknown kind %q", rune(kind))
	switch kind {
	case tar.TypeChar, tar.TypeBlock:
		what = "a device"
	case tar.TypeFifo:
		what = "a fifo"
	}
	return &Error{Reason: "is " + what + "; environments only have files, directories and links"}
}

// file creates a file and puts its content into batches.
func (e *entries) file(name string, header *tar.Header) error {
	if header.Size > e.limits.Bytes-e.bytes {
		return &Error{Limit: "Bytes", Reason: fmt.Sprintf("has %d bytes, but only %[3]d of the limit of %[2]d for all files are left; raise the limit if you trust the archive", header.Size, e.limits.Bytes, e.limits.Bytes-e.bytes)}
	}
	e.bytes += header.Size
	created, err := e.tree.create(name)
	if err != nil {
		return err
	}
	entry := strings.Clone(header.Name) // which is a part of the whole header. bound: maxName
	f := &file{File: created, entry: entry, mode: fs.FileMode(header.Mode)&0o755 | 0o600, mtime: limitTime(header.ModTime)}
	f.parts.Store(1)
	defer e.writers.release(f)
	for offset := int64(0); offset < header.Size; {
		room, err := e.writers.room(header.Size - offset)
		if err != nil {
			return err
		}
		n, err := io.ReadFull(e.tar, room)
		if err != nil {
			return dataError(offset+int64(n), header.Size, err)
		}
		e.writers.add(f, n, offset)
		offset += int64(n)
		// A sparse file has content that is not in the archive, however compressed.
		if err := checkRatio(e.bytes-header.Size+offset, e.progress.Read.Load(), e.limits.Ratio); err != nil {
			return err
		}
	}
	return nil
}

// headerError is an error of reading the header that follows an entry.
func headerError(before string, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	if err = readError(err); !errors.As(err, &refused) {
		return err
	}
	after := "before its first entry"
	if before != "" {
		after = fmt.Sprintf("after entry %q", infer.Cut(before, mostShown))
	}
	return &Error{Reason: damagedHeader + refused.Reason + " " + after, Err: refused.Err}
}

// dataError is an error of reading content of an entry.
func dataError(done, size int64, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	if err = readError(err); !errors.As(err, &refused) {
		return err
	}
	return &Error{Reason: fmt.Sprintf("%s: %s after %d of the entry's %d bytes", damagedData, refused.Reason, done, size), Err: refused.Err}
}

// named puts the name of an entry into an error that has none.
func named(entry string, err error) error {
	var refused *Error
	if errors.As(err, &refused) && refused.Entry == "" {
		refused.Entry = entry
	}
	return err
}

// ended detects the end mark of an archive: the reader of headers accepts an archive that is
// truncated between two entries. It reads headers in blocks of 512 bytes; two blocks of zeros are
// the mark, and the second may be missing.
type ended struct {
	in    io.Reader
	zeros bool // the last block of 512 bytes was zeros
}

// Read implements io.Reader.
func (e *ended) Read(p []byte) (int, error) {
	if len(p) != blockSize {
		return e.in.Read(p)
	}
	n, err := io.ReadFull(e.in, p)
	if err == io.ErrUnexpectedEOF && n > 0 {
		// Of the decompressor, or of ReadFull: the next Read tells.
		return n, nil
	}
	if err == nil {
		e.zeros = [blockSize]byte(p) == [blockSize]byte{}
	}
	return n, err
}

// ratioFloor is the size that any archive may unpack to: small ones may consist of zeros.
const ratioFloor = 64 << 20

func checkRatio(unpacked, read, limit int64) error {
	if unpacked <= ratioFloor || unpacked/limit < read {
		return nil
	}
	return &Error{Limit: "Ratio", Reason: fmt.Sprintf("the archive has unpacked to %d bytes, more than %d times the %d bytes read from it; raise the limit on the ratio if you trust it", unpacked, limit, read)}
}

// asDiskError converts an error number, and leaves an Error as it is.
func asDiskError(doing string, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	var number unix.Errno
	if errors.As(err, &number) {
		return diskError("", doing, err)
	}
	return err
}
