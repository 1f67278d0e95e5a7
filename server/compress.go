package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// contentCoding is a content coding of the protocol.
type contentCoding uint8

const (
	identity contentCoding = iota
	gzipped
	deflated // in the zlib format
)

var encodingNames = [...]string{identity: "identity", gzipped: "gzip", deflated: "deflate"}

// String returns the name as it stands in headers.
func (c contentCoding) String() string { return encodingNames[c] }

// encoded returns the request's Content-Encoding: case matters, lists are not
// understood.
func (r *request) encoded() (c contentCoding, known bool) {
	value, _ := r.header("Content-Encoding")
	switch value {
	case "", "identity":
		return identity, true
	case "gzip":
		return gzipped, true
	case "deflate":
		return deflated, true
	}
	return identity, false
}

// accepted chooses the coding of a reply by the request's Accept-Encoding.
func (r *request) accepted() contentCoding {
	accept, _ := r.header("Accept-Encoding")
	return replyEncoding(accept)
}

// replyEncoding chooses from an Accept-Encoding header: the known coding of the
// highest weight, the first of equal ones.
func replyEncoding(accept string) contentCoding {
	if accept == "" {
		return identity
	}
	best, weight := identity, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		name, params, weighted := strings.Cut(strings.Trim(one, " \t"), ";")
		coding := identity
		switch name {
		case "gzip":
			coding = gzipped
		case "deflate":
			coding = deflated
		case "identity":
		default:
			continue
		}
		q := 1.0
		if weighted {
			q = readWeight(params)
		}
		if q > weight {
			best, weight = coding, q
		}
	}
	return best
}

// readWeight reads "q=<number>" and whatever follows the number.
func readWeight(params string) float64 {
	text, ok := strings.CutPrefix(strings.TrimLeft(params, " \t"), "q=")
	if !ok {
		return 0
	}
	end := 0
	for end < len(text) && (isDigit(text[end]) || text[end] == '.') {
		end++
	}
	q, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0
	}
	return q
}

// inflater decompresses one body after another. It tells gzip and zlib apart by
// their first bytes, whatever the header says, and stops at a limit.
type inflater struct {
	buf     *bufio.Reader
	gzip    *gzip.Reader
	zlib    io.ReadCloser
	src     io.Reader // gzip or zlib, nil before the first byte
	limit   int64
	out     int64
	failure error
}

// codecs keeps compressors and decompressors, which are large, for their next
// use. The zero value is ready.
type codecs struct {
	inflaters sync.Pool // of *inflater
	gzips     sync.Pool // of *gzip.Writer
	zlibs     sync.Pool // of *zlib.Writer
}

// inflater returns an inflater that reads src and yields at most limit bytes.
func (c *codecs) inflater(src io.Reader, limit int64) *inflater {
	z, ok := c.inflaters.Get().(*inflater)
	if !ok {
		z = &inflater{buf: bufio.NewReader(nil)}
	}
	z.buf.Reset(src)
	z.src, z.limit, z.out, z.failure = nil, limit, 0, nil
	return z
}

// free takes an inflater back; it must not be used after that.
func (c *codecs) free(z *inflater) {
	z.buf.Reset(nil)
	c.inflaters.Put(z)
}

// errNothingCompressed refuses an empty body that is said to be compressed.
var errNothingCompressed = &bodyError{"nothing to be decompressed"}

// Read fails with a *bodyError for data that is corrupt, cut off, or larger
// than the limit when decompressed.
func (z *inflater) Read(p []byte) (int, error) {
	if z.failure == nil && z.src == nil {
		z.failure = z.open()
	}
	if z.failure != nil {
		return 0, z.failure
	}
	n, err := z.src.Read(p)
	if z.out += int64(n); z.out > z.limit {
		n, err = 0, &bodyError{fmt.Sprintf(
			"Decompressed data size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", z.limit)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		z.failure = errInflate(err)
		return n, z.failure
	}
	z.failure = err
	return n, err
}

func errInflate(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	var refused *bodyError
	if errors.As(err, &refused) {
		return refused
	}
	return &bodyError{"compressed request body is corrupt or ends early"}
}

func (z *inflater) open() error {
	magic, err := z.buf.Peek(2)
	if len(magic) == 0 {
		if errors.Is(err, io.EOF) {
			return errNothingCompressed
		}
		return err
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if z.gzip == nil {
			z.gzip = new(gzip.Reader)
		}
		z.src, err = z.gzip, z.gzip.Reset(z.buf)
		if err == nil {
			z.gzip.Multistream(false)
		}
	} else if z.zlib == nil {
		z.zlib, err = zlib.NewReader(z.buf)
		z.src = z.zlib
	} else {
		z.src, err = z.zlib, z.zlib.(zlib.Resetter).Reset(z.buf, nil)
	}
	if err != nil {
		return errInflate(err)
	}
	return nil
}

// compress appends the parts, compressed as one, to dst.
func (c *codecs) compress(dst []byte, e contentCoding, parts ...[]byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	var z io.WriteCloser
	if e == gzipped {
		w, ok := c.gzips.Get().(*gzip.Writer)
		if !ok {
			w = gzip.NewWriter(nil)
		}
		defer c.gzips.Put(w)
		w.Reset(out)
		z = w
	} else {
		w, ok := c.zlibs.Get().(*zlib.Writer)
		if !ok {
			w = zlib.NewWriter(nil)
		}
		defer c.zlibs.Put(w)
		w.Reset(out)
		z = w
	}
	for _, part := range parts {
		if _, err := z.Write(part); err != nil {
			return dst, err
		}
	}
	if err := z.Close(); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}
