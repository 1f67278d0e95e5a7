package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// Bounds of a compression's window in memory. A decoder takes up to one and a half times the
// window.
const (
	zstdWindow = 128 << 20 // as the zstd command has it without --long
	zstdLeast  = 8 << 20   // RFC 8878, section 3.1.1.1.2
	xzWindow   = 64 << 20  // as xz -9 makes it
)

const blockSize = 512 // of tar

// format is one of the five kinds of archives.
type format struct {
	begins     func(head []byte) bool
	decompress func(in *bufio.Reader, window int) (io.Reader, error) // nil for a bare archive
	window     func(in *bufio.Reader) int                            // bytes, at most; nil for a small one
}

// formats are tried in this order: the checksum in a tar header is better evidence than the first
// bytes, which may be a name.
var formats = []format{
	{beginsTar, nil, nil},
	{magic("\x1f\x8b"), func(in *bufio.Reader, _ int) (io.Reader, error) { return &members{in: in}, nil }, nil},
	{beginsZstd, func(in *bufio.Reader, window int) (io.Reader, error) {
		// With a concurrency of one it decodes in the goroutine that reads, behind its boundary.
		return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(window)))
	}, windowOfZstd},
	{magic("BZh"), func(in *bufio.Reader, _ int) (io.Reader, error) { return bzip2.NewReader(in), nil }, nil},
	{magic("\xfd7zXZ\x00"), func(in *bufio.Reader, window int) (io.Reader, error) {
		return xz.NewReader(in, uint32(window))
	}, windowOfXZ},
}

// recognise looks at the first bytes of an archive.
func recognise(in *bufio.Reader) (format, error) {
	head, err := in.Peek(blockSize)
	if err != nil && err != io.EOF {
		return format{}, readError(err)
	}
	for _, f := range formats {
		if f.begins(head) {
			return f, nil
		}
	}
	const refused = "archive_read_open_filename() failed.: "
	if len(head) == 0 {
		return format{}, &Error{Reason: refused + "the file is empty"}
	}
	for _, other := range []struct{ magic, name string }{{"PK\x03\x04", "zip"}, {"hsqs", "squashfs"}} {
		if bytes.HasPrefix(head, []byte(other.magic)) { // bound: a constant
			return format{}, &Error{Reason: refused + "the file is a " + other.name + " archive; pack the environment as tar.gz or tar.zst"}
		}
	}
	return format{}, &Error{Reason: fmt.Sprintf("%sthe file begins with % x and is not a tar archive, plain or compressed with gzip, zstd, bzip2 or xz", refused, head[:min(len(head), 8)])}
}

func magic(text string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(text)) } // bound: a constant
}

// beginsZstd knows frames and the skippable frames that pzstd puts before them.
func beginsZstd(head []byte) bool {
	return magic("\x28\xb5\x2f\xfd")(head) || len(head) > 4 && head[0]&0xf0 == 0x50 && magic("\x2a\x4d\x18")(head[1:])
}

// windowOfZstd returns the window of the first frame, and at least what zstd recommends for every
// decoder, which later frames may have. pzstd puts a short skippable frame before it.
func windowOfZstd(in *bufio.Reader) int {
	head, _ := in.Peek(blockSize) // a short archive fails later
	var h zstd.Header
	if err := h.Decode(head); err == nil && h.Skippable && h.HeaderSize+int(h.SkippableSize) < len(head) {
		_ = h.Decode(head[h.HeaderSize+int(h.SkippableSize):]) // WindowSize is 0 after an error
	}
	size := h.WindowSize
	switch {
	case h.SingleSegment:
		size = h.FrameContentSize
	case size == 0: // not understood
		return zstdWindow
	}
	return int(min(max(size, zstdLeast), zstdWindow))
}

// windowOfXZ returns the dictionary of the first block, which is that of all blocks of a file that
// xz has written, by the format's specification 1.2, section 3.1.
func windowOfXZ(in *bufio.Reader) int {
	head, _ := in.Peek(blockSize)
	const streamHead, lzma2 = 12, 0x21
	if len(head) < streamHead+8 {
		return xzWindow
	}
	size := 4 * (int(head[streamHead]) + 1)
	block := head[:min(streamHead+size, len(head))]
	// Only integrity checks follow the last filter, LZMA2, whose property is one byte.
	at := bytes.LastIndex(block[:len(block)-4], []byte{lzma2, 1})
	if at < 0 || at+2 >= len(block)-4 {
		return xzWindow
	}
	exponent := int(block[at+2])
	if exponent > 30 {
		return xzWindow
	}
	return min(max((2|exponent&1)<<(exponent/2+11), 1<<20), xzWindow)
}

// beginsTar asks the reader of headers, which checks the checksum. A block of zeros is the end of
// an archive without entries.
func beginsTar(head []byte) bool {
	if len(head) < blockSize {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(head)).Next()
	return err != tar.ErrHeader
}

// members reads successive gzip members, as gzip, pigz and bgzip write them. Zeros between and
// after them are padding.
type members struct {
	in   *bufio.Reader
	gzip *gzip.Reader // of the current member
}

// Read implements io.Reader.
func (m *members) Read(p []byte) (int, error) {
	for {
		if m.gzip != nil {
			if n, err := m.gzip.Read(p); n > 0 || err != io.EOF {
				if err == io.EOF {
					err = nil // asked again, it says so again
				}
				return n, err
			}
		}
		if err := m.next(); err != nil {
			return 0, err
		}
	}
}

// next begins the next member, or returns io.EOF.
func (m *members) next() (err error) {
	if m.gzip == nil {
		if m.gzip, err = gzip.NewReader(m.in); err != nil {
			return midway(err)
		}
		m.gzip.Multistream(false)
		return nil
	}
	for {
		head, err := m.in.Peek(1)
		if err != nil {
			return err // io.EOF: the end
		}
		if head[0] != 0 {
			break
		}
		_, _ = m.in.Discard(1)
	}
	if head, err := m.in.Peek(2); err != nil || head[0] != 0x1f || head[1] != 0x8b {
		return errTrailing
	}
	if err := m.gzip.Reset(m.in); err != nil {
		return midway(err)
	}
	m.gzip.Multistream(false)
	return nil
}

// midway converts an end of file to an unexpected one.
func midway(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
